"""Launch profiles: what starts a bundle's tools, and how it is checked against them."""

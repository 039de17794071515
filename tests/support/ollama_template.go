// Gives a conversation the text that Ollama would give it, by Ollama's own packages, and says what
// Ollama finds in an answer. Standard input: one JSON object; standard output: one.
//
// In an empty folder, with Go 1.24 or newer:
//
//	cp .../tests/support/ollama_template.go main.go && go mod init ollama-template
//	go get github.com/ollama/ollama@v0.17.4 && go mod tidy && go build
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/template"
	"github.com/ollama/ollama/tools"
)

type question struct {
	Template string        `json:"template"`
	Messages []api.Message `json:"messages"`
	Tools    api.Tools     `json:"tools"`
	Answer   string        `json:"answer"`
}

type reply struct {
	Text    string         `json:"text"`
	Vars    []string       `json:"vars"`
	Calls   []api.ToolCall `json:"calls"`
	Content string         `json:"content"`
}

func work() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	parsed, err := template.Parse(asked.Template)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	values := template.Values{Messages: asked.Messages, Tools: asked.Tools}
	if err := parsed.Execute(&text, values); err != nil {
		return err
	}
	told := reply{Text: text.String()}
	if told.Vars, err = parsed.Vars(); err != nil {
		return err
	}
	told.Calls, told.Content = tools.NewParser(parsed.Template, asked.Tools).Add(asked.Answer)
	return json.NewEncoder(os.Stdout).Encode(told)
}

func main() {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

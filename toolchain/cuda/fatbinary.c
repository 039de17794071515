/* fatbinary: a stand-in for NVIDIA's program of that name, over their nvfatbin library.
 *
 * clang's CUDA driver ends every compilation of device code with one call
 *
 *   fatbinary -64 --create OUT --image3=kind=elf,sm=61,file=A.cubin --image3=kind=ptx,sm=80,file=B.s
 *
 * One option is our own: --drop-cubin=ARCH leaves that architecture's cubin out, so that a PTX-only
 * architecture (CMake's 80-virtual) can be had from clang, which always makes the cubin too.
 *
 * (clang before 20 spells an image --image=profile=sm_61,file=A or profile=compute_80). No CUDA 12
 * wheel carries the program; the wheel nvidia-nvfatbin-cu12 carries a library that writes the same
 * format. This file reads that command line and calls the library.
 *
 * The library is loaded from the folder beside this program (QBUILD_NVFATBIN names it at compile
 * time), so that neither PATH nor LD_LIBRARY_PATH matters. Exit code 0, or 1 with one line on
 * stderr. Written in C99 so that zig compiles it for a Linux and for a Windows host alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#include <unistd.h>
#endif

#ifndef QBUILD_NVFATBIN
#define QBUILD_NVFATBIN "libnvfatbin.so.12"
#endif

#define MAX_OPTIONS 32

/* nvFatbin.h: every function returns an enum whose 0 is success; a handle is one opaque pointer. */
typedef struct nvfatbin_handle * handle_t;
typedef int          (*create_fn) (handle_t *, const char **, size_t);
typedef int          (*cubin_fn)  (handle_t, const void *, size_t, const char *, const char *);
typedef int          (*ptx_fn)    (handle_t, const char *, size_t, const char *, const char *, const char *);
typedef int          (*size_fn)   (handle_t, size_t *);
typedef int          (*get_fn)    (handle_t, void *);
typedef int          (*destroy_fn)(handle_t *);
typedef const char * (*error_fn)  (int);

static error_fn error_text;

static int fail(const char * what, const char * detail) {
    fprintf(stderr, "fatbinary: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    return 1;
}

/* Folder of this program, with its last separator; 0 where the system will not say. */
static int own_folder(char * path, size_t size) {
#ifdef _WIN32
    DWORD length = GetModuleFileNameA(NULL, path, (DWORD) size);
    if (length == 0 || length >= size) {
        return 0;
    }
    char * end = strrchr(path, '\\');
#else
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length <= 0) {
        return 0;
    }
    path[length] = '\0';
    char * end = strrchr(path, '/');
#endif
    if (!end) {
        return 0;
    }
    end[1] = '\0';
    return 1;
}

static void * symbol(void * library, const char * name) {
#ifdef _WIN32
    return (void *) GetProcAddress((HMODULE) library, name);
#else
    return dlsym(library, name);
#endif
}

static void * open_library(void) {
    char path[4096];
    if (!own_folder(path, sizeof(path) - sizeof(QBUILD_NVFATBIN))) {
        return NULL;
    }
    strcat(path, QBUILD_NVFATBIN);
#ifdef _WIN32
    return (void *) LoadLibraryA(path);
#else
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
#endif
}

/* Reads a whole file; adds one zero byte, which nvFatbinAddPTX wants counted. */
static char * read_file(const char * path, size_t * size) {
    FILE * file = fopen(path, "rb");
    if (!file) {
        return NULL;
    }
    char * data = NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        long length = ftell(file);
        rewind(file);
        if (length >= 0 && (data = malloc((size_t) length + 1)) != NULL) {
            *size = fread(data, 1, (size_t) length, file);
            data[*size] = '\0';
            if (*size != (size_t) length) {
                free(data);
                data = NULL;
            }
        }
    }
    fclose(file);
    return data;
}

struct image {
    const char * file;
    char         arch[16]; /* "61", "120a" */
    int          ptx;
};

/* "kind=elf,sm=61,file=PATH" or "profile=sm_61,file=PATH"; PATH is last and may hold commas. */
static int parse_image(char * text, struct image * image) {
    char * file = strstr(text, "file=");
    if (!file || (file != text && file[-1] != ',')) {
        return 0;
    }
    image->file    = file + 5;
    image->arch[0] = '\0';
    image->ptx     = 0;
    if (file != text) {
        file[-1] = '\0';
    }
    for (char * part = strtok(text, ","); part; part = strtok(NULL, ",")) {
        const char * arch = NULL;
        if (strncmp(part, "kind=", 5) == 0) {
            if (strcmp(part + 5, "ptx") == 0) {
                image->ptx = 1;
            } else if (strcmp(part + 5, "elf") != 0) {
                return 0;
            }
        } else if (strncmp(part, "sm=", 3) == 0) {
            arch = part + 3;
        } else if (strncmp(part, "profile=sm_", 11) == 0) {
            arch = part + 11;
        } else if (strncmp(part, "profile=compute_", 16) == 0) {
            arch       = part + 16;
            image->ptx = 1;
        } else {
            return 0;
        }
        if (arch) {
            if (strlen(arch) >= sizeof(image->arch)) {
                return 0;
            }
            strcpy(image->arch, arch);
        }
    }
    return image->arch[0] != '\0' && image->file[0] != '\0';
}

int main(int argc, char ** argv) {
    const char * out = NULL;
    const char * options[MAX_OPTIONS];
    size_t       n_options = 0;
    char         compress[64] = "";

    struct image * images = calloc((size_t) argc, sizeof(*images));
    size_t         n_images = 0;
    const char **  drops = calloc((size_t) argc, sizeof(*drops));
    size_t         n_drops = 0;
    if (!images || !drops) {
        return fail("out of memory", NULL);
    }

    for (int i = 1; i < argc; i++) {
        char * arg = argv[i];
        if (strcmp(arg, "--create") == 0 && i + 1 < argc) {
            out = argv[++i];
        } else if (strncmp(arg, "--create=", 9) == 0) {
            out = arg + 9;
        } else if (strncmp(arg, "--image3=", 9) == 0 || strncmp(arg, "--image=", 8) == 0) {
            char copy[4096];
            snprintf(copy, sizeof(copy), "%s", arg);
            if (!parse_image(strchr(arg, '=') + 1, &images[n_images])) {
                return fail("cannot read this image", copy);
            }
            n_images++;
        } else if (strncmp(arg, "-compress-mode=", 15) == 0 || strncmp(arg, "--compress-mode=", 16) == 0) {
            snprintf(compress, sizeof(compress), "-compress-mode=%s", strchr(arg, '=') + 1);
            options[n_options++] = compress;
        } else if (strcmp(arg, "-64") == 0 || strcmp(arg, "-g") == 0 || strcmp(arg, "-cuda") == 0 ||
                   strcmp(arg, "-compress-all") == 0) {
            options[n_options++] = arg;
        } else if (strcmp(arg, "--cuda") == 0 || strcmp(arg, "--compress-all") == 0) {
            options[n_options++] = arg + 1;
        } else if (strncmp(arg, "--drop-cubin=", 13) == 0) {
            drops[n_drops++] = arg + 13;
        } else {
            return fail("this argument is not known", arg);
        }
        if (n_options >= MAX_OPTIONS) {
            return fail("too many options", NULL);
        }
    }
    if (!out) {
        return fail("no --create OUT was given", NULL);
    }
    if (n_images == 0) {
        return fail("no --image3=kind=…,sm=…,file=… was given", NULL);
    }

    void * library = open_library();
    if (!library) {
        return fail("cannot load " QBUILD_NVFATBIN " from the folder of this program", NULL);
    }
    create_fn  create  = (create_fn)  symbol(library, "nvFatbinCreate");
    cubin_fn   cubin   = (cubin_fn)   symbol(library, "nvFatbinAddCubin");
    ptx_fn     ptx     = (ptx_fn)     symbol(library, "nvFatbinAddPTX");
    size_fn    size_of = (size_fn)    symbol(library, "nvFatbinSize");
    get_fn     get     = (get_fn)     symbol(library, "nvFatbinGet");
    destroy_fn destroy = (destroy_fn) symbol(library, "nvFatbinDestroy");
    error_text         = (error_fn)   symbol(library, "nvFatbinGetErrorString");
    if (!create || !cubin || !ptx || !size_of || !get || !destroy || !error_text) {
        return fail(QBUILD_NVFATBIN " lacks a function of nvFatbin.h", NULL);
    }

    handle_t handle = NULL;
    int      rc     = create(&handle, options, n_options);
    if (rc) {
        return fail("nvFatbinCreate", error_text(rc));
    }
    size_t added = 0;
    for (size_t i = 0; i < n_images; i++) {
        int dropped = 0;
        for (size_t d = 0; d < n_drops; d++) {
            dropped |= !images[i].ptx && strcmp(drops[d], images[i].arch) == 0;
        }
        if (dropped) {
            continue;
        }
        added++;
        size_t size = 0;
        char * data = read_file(images[i].file, &size);
        if (!data) {
            return fail("cannot read", images[i].file);
        }
        /* The identifier is left empty: clang's temporary names would make the bytes change. */
        rc = images[i].ptx ? ptx(handle, data, size + 1, images[i].arch, "", "")
                           : cubin(handle, data, size, images[i].arch, "");
        free(data);
        if (rc) {
            return fail(images[i].file, error_text(rc));
        }
    }
    if (added == 0) {
        return fail("--drop-cubin leaves nothing", NULL);
    }
    size_t size = 0;
    if ((rc = size_of(handle, &size)) != 0) {
        return fail("nvFatbinSize", error_text(rc));
    }
    void * data = malloc(size);
    if (!data) {
        return fail("out of memory", NULL);
    }
    if ((rc = get(handle, data)) != 0) {
        return fail("nvFatbinGet", error_text(rc));
    }
    FILE * file = fopen(out, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        return fail("cannot write", out);
    }
    destroy(&handle);
    free(data);
    free(images);
    free(drops);
    return 0;
}

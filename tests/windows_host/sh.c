/* What git asks a shell for on the Windows machine: `sh -c "git-upload-pack 'FOLDER'"`, no more.
 *
 * Git for Windows has a whole shell of MSYS2. As that one does, it hands a program `C:/x` for
 * `/C:/x`, which is the path of file:///C:/x. */
#include <ctype.h>
#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copy one word, its single quotes and backslashes taken away, in the double quotes of Windows. */
static const char *word(const char *p, char **made) {
    char *out = *made = malloc(strlen(p) + 3);
    *out++ = '"';
    while (*p && !isspace((unsigned char)*p)) {
        if (*p == '\'') {
            for (p++; *p && *p != '\''; ) *out++ = *p++;
            if (*p) p++;
        } else {
            if (*p == '\\' && p[1]) p++;
            *out++ = *p++;
        }
    }
    *out++ = '"';
    *out = 0;
    char *begin = *made + 1;
    if (begin[0] == '/' && isalpha((unsigned char)begin[1]) && begin[2] == ':')
        memmove(begin, begin + 1, strlen(begin));
    return p;
}

int main(int count, char **given) {
    char *words[64] = {0};
    int found = 0;
    if (count < 3 || strcmp(given[1], "-c")) {
        fprintf(stderr, "sh: only -c is understood\n");
        return 127;
    }
    for (const char *p = given[2]; found < 60; ) {
        while (isspace((unsigned char)*p)) p++;
        if (!*p) break;
        p = word(p, &words[found++]);
    }
    char *program = words[0] ? strdup(words[0] + 1) : "";
    if (*program) program[strlen(program) - 1] = 0;
    intptr_t status = _spawnvp(_P_WAIT, program, (const char *const *)words);
    if (status < 0) fprintf(stderr, "sh: %s: not found\n", program);
    return status < 0 ? 127 : (int)status;
}

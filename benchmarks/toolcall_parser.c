/* Reads made texts and schemas with libllama's tool-call parser and says what they cost.
 *
 *   toolcall_parser answer START AGAIN BYTES ROUNDS   START and then AGAIN until BYTES, four bytes at a time
 *   toolcall_parser schema FILE ROUNDS                the tools of a JSON file
 *
 * Prints the least CPU time of the rounds in seconds, and the largest memory above the start in KiB.
 */
#include "llama-tool-call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKEN = 4 }; /* bytes fed at once */

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

/* a field of /proc/self/status, in KiB */
static long memory(const char * field) {
    char   line[256];
    long   kib    = 0;
    FILE * status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        if (!strncmp(line, field, strlen(field))) {
            kib = atol(line + strlen(field) + 1);
        }
    }
    if (status) {
        fclose(status);
    }
    return kib;
}

static void read_answer(const char * text, size_t size) {
    struct llama_tool_call_parser * parser = llama_tool_call_parser_init(NULL, "auto", NULL);
    struct llama_tool_call_event    event;
    for (size_t at = 0; at < size; at += TOKEN) {
        llama_tool_call_parser_feed(parser, text + at, size - at < TOKEN ? size - at : TOKEN);
        while (llama_tool_call_parser_next(parser, &event)) {
        }
    }
    llama_tool_call_parser_finish(parser, false);
    while (llama_tool_call_parser_next(parser, &event)) {
    }
    llama_tool_call_parser_free(parser);
}

static char * repeated(const char * start, const char * again, size_t size) {
    char * text = malloc(size + 1);
    size_t at   = strlen(start);
    memcpy(text, start, at);
    for (size_t n = strlen(again); at < size; at += n) {
        memcpy(text + at, again, n < size - at ? n : size - at);
    }
    return text;
}

static char * whole_file(const char * path) {
    FILE * file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    rewind(file);
    char * text = calloc(1, (size_t) size + 1);
    if (fread(text, 1, (size_t) size, file) != (size_t) size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return text;
}

int main(int argc, char ** argv) {
    const int answer = argc == 6 && !strcmp(argv[1], "answer");
    if (!answer && !(argc == 4 && !strcmp(argv[1], "schema"))) {
        fprintf(stderr, "usage: %s answer START AGAIN BYTES ROUNDS | schema FILE ROUNDS\n", argv[0]);
        return 2;
    }
    const size_t size  = answer ? (size_t) atol(argv[4]) : 0;
    char *       text  = answer ? repeated(argv[2], argv[3], size) : whole_file(argv[2]);
    const long   start = memory("VmRSS:");
    double       best  = 1e9;
    for (int round = atoi(argv[answer ? 5 : 3]); round > 0; round--) {
        const double before = cpu_seconds();
        if (answer) {
            read_answer(text, size);
        } else {
            llama_tool_call_parser_free(llama_tool_call_parser_init(NULL, "qwen3-xml", text));
        }
        const double spent = cpu_seconds() - before;
        best = spent < best ? spent : best;
    }
    printf("%.6f %ld\n", best, memory("VmHWM:") - start);
    free(text);
    return 0;
}

// A stand-in for llama-server.exe: prints its arguments in UTF-8, listens when it can.
#include <winsock2.h>
#include <windows.h>
#include <shellapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    int    count;
    LPWSTR * wide = CommandLineToArgvW(GetCommandLineW(), &count);
    int    port = 0, code = 0, serve = 0;
    char   log[1024] = "";
    if (count == 2 && !wcscmp(wide[1], L"--help")) {
        puts("--serve                   listen\n--top-k N                 top k\n--name NAME               a name\n"
             "--last N                  the last\n--chat-template-kwargs S  JSON\n"
             "--draft, --draft-n, --draft-max N   the argument has been removed. use --spec-draft-n-max");
        return 0;
    }
    for (int i = 1; i < count; i++) {
        char text[1024];
        WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, text, sizeof text, NULL, NULL);
        printf("[%s]\n", text);
        if (i + 1 < count) {
            char next[1024];
            WideCharToMultiByte(CP_UTF8, 0, wide[i + 1], -1, next, sizeof next, NULL, NULL);
            if (!strcmp(text, "--port")) port = atoi(next);
            if (!strcmp(text, "--exit")) code = atoi(next);
            if (!strcmp(text, "--log-file")) strcpy(log, next);
        }
        if (!strcmp(text, "--serve")) serve = 1;
    }
    fflush(stdout);
    if (serve) {
        WSADATA data;
        WSAStartup(MAKEWORD(2, 2), &data);
        SOCKET listener = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((unsigned short) port) };
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(listener, (struct sockaddr *) &at, sizeof at) || listen(listener, 1)) {
            FILE * file = fopen(log, "a");
            if (file) {
                fprintf(file, "E srv: couldn't bind HTTP server socket, port: %d\n", port);
                fclose(file);
            }
            return 1;
        }
        printf("listening on http://127.0.0.1:%d\n", port);
    }
    return code;
}

/* A zig.exe for tests in Wine: it hands its arguments to the pinned zig of the system below Wine.

   zig.exe itself runs in Wine (wine_shim.c), but builds its C runtime for the better part of an hour
   there. With this one in its place everything else of a build is Windows': Python, CMake, ninja, cmd,
   the wrappers, the store. Wine starts a program of the system below it but cannot wait for it, so a
   shell writes what it said, and its exit status, into files. */
#include <windows.h>
#include <shellapi.h>

static HANDLE heap;
static char *text;
static DWORD used, room;

static void add(const char *s, DWORD n) {
    while (used + n + 1 > room) {
        room = room ? room * 2 : 65536;
        text = text ? HeapReAlloc(heap, 0, text, room) : HeapAlloc(heap, 0, room);
    }
    for (DWORD i = 0; i < n; i++) text[used++] = s[i];
}

static DWORD length(const char *s) { DWORD n = 0; while (s[n]) n++; return n; }
static void put(const char *s) { add(s, length(s)); }

/* Z:\a\b and Z:/a/b are /a/b below Wine. */
static void translate(const char *s, DWORD n, int quoted) {
    for (DWORD i = 0; i < n; i++) {
        if ((s[i] == 'Z' || s[i] == 'z') && i + 2 < n && s[i + 1] == ':' && (s[i + 2] == '\\' || s[i + 2] == '/')) { i++; continue; }
        char c = s[i] == '\\' ? '/' : s[i];
        if (quoted && c == '\'') put("'\\''"); else add(&c, 1);
    }
}

static char *utf8(const wchar_t *w) {
    int n = WideCharToMultiByte(CP_UTF8, 0, w, -1, 0, 0, 0, 0);
    char *s = HeapAlloc(heap, 0, n);
    WideCharToMultiByte(CP_UTF8, 0, w, -1, s, n, 0, 0);
    return s;
}

static char *read_file(const wchar_t *name, DWORD *size) {
    HANDLE f = CreateFileW(name, GENERIC_READ, 7, 0, OPEN_EXISTING, 0, 0);
    if (f == INVALID_HANDLE_VALUE) return 0;
    *size = GetFileSize(f, 0);
    char *data = HeapAlloc(heap, 0, *size + 1);
    ReadFile(f, data, *size, size, 0);
    data[*size] = 0;
    CloseHandle(f);
    return data;
}

static void write_file(const wchar_t *name, const char *data, DWORD size) {
    HANDLE f = CreateFileW(name, GENERIC_WRITE, 7, 0, CREATE_ALWAYS, 0, 0);
    WriteFile(f, data, size, &size, 0);
    CloseHandle(f);
}

/* CMake's files that stand for a group of sources name those with their drive. What the zig below
   Wine cannot open is renamed in place: a copy of another name would show in `__FILE__`. */
static void translate_file(const wchar_t *from, const wchar_t *to) {
    DWORD size;
    char *data = read_file(from, &size);
    if (!data) return;
    char *kept = text; DWORD was = used, big = room;
    text = 0; used = room = 0;
    translate(data, size, 0);
    if (from != to || used != size) write_file(to, text, used);
    text = kept; used = was; room = big;
}

static int names_a_group(const wchar_t *w) {
    static const wchar_t folder[] = L"Unity", file[] = L"unity_";
    for (; *w; w++) {
        int i = 0;
        while (i < 5 && w[i] == folder[i]) i++;
        if (i < 5 || (w[5] != '/' && w[5] != '\\')) continue;
        for (i = 0; i < 6 && w[6 + i] == file[i];) i++;
        if (i < 6) continue;
        for (w += 12; *w; w++) if (w[0] == '.' && w[1] == 'c') return w[2] == 0 || (w[2] == 'x' && w[3] == 'x' && w[4] == 0);
        return 0;
    }
    return 0;
}

static void quoted(const wchar_t *w) { char *s = utf8(w); put(" '"); translate(s, length(s), 1); put("'"); }

void start(void) {
    heap = GetProcessHeap();
    int count;
    wchar_t **words = CommandLineToArgvW(GetCommandLineW(), &count);
    wchar_t base[MAX_PATH], script[MAX_PATH], done[MAX_PATH], out[MAX_PATH], here[4096], self[MAX_PATH];
    wsprintfW(base, L"Z:\\tmp\\qbuild-zig-%u-%u", GetCurrentProcessId(), GetTickCount());
    wsprintfW(script, L"%s.sh", base);
    wsprintfW(done, L"%s.done", base);
    wsprintfW(out, L"%s.out", base);
    GetCurrentDirectoryW(4096, here);
    GetModuleFileNameW(0, self, MAX_PATH);
    wchar_t *end = self + lstrlenW(self) - 3;  /* zig.exe -> zig.txt: variables, and the program */
    lstrcpyW(end, L"txt");
    DWORD size;
    char *program = read_file(self, &size);
    put("cd");
    quoted(here);
    put("\n");
    put(program);  /* lines that set variables, and the start of the command */
    for (int i = 1; i < count; i++) {
        if (words[i][0] == '@') {
            wchar_t other[4096];
            wsprintfW(other, L"%s.below", words[i] + 1);
            translate_file(words[i] + 1, other);
            wsprintfW(other, L"@%s.below", words[i] + 1);
            quoted(other);
            continue;
        }
        if (names_a_group(words[i])) translate_file(words[i], words[i]);
        quoted(words[i]);
    }
    put(" >"); quoted(out); put(" 2>&1\necho $? >"); quoted(base);
    put("\nmv"); quoted(base); quoted(done); put("\n");
    write_file(script, text, used);
    wchar_t line[1024];
    wsprintfW(line, L"sh %s", script + 2);
    for (wchar_t *p = line; *p; p++) if (*p == '\\') *p = '/';
    STARTUPINFOW info = {sizeof(info)};
    PROCESS_INFORMATION made;
    CreateProcessW(L"Z:\\bin\\sh", line, 0, 0, 0, 0, 0, 0, &info, &made);
    char *status;
    for (DWORD waited = 0, ms; !(status = read_file(done, &size)); waited += ms) {
        if (waited > 3600000) ExitProcess(99);  /* an hour: the C runtime may have to be built */
        Sleep(ms = waited < 1000 ? 10 : 100);  /* each look costs Wine's servers some time */
    }
    char *said = read_file(out, &size);
    if (said) WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), said, size, &size, 0);
    DeleteFileW(script); DeleteFileW(done); DeleteFileW(out);
    DWORD code = 0;
    while (*status >= '0' && *status <= '9') code = code * 10 + (*status++ - '0');
    ExitProcess(code);
}

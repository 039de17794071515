/* Stands before Wine's ntdll.dll so that zig.exe runs there. FOR TESTS ONLY.

   A copy of the pinned zig.exe loads this library in place of ntdll.dll; all but the functions below
   go straight on to the real one. Windows itself needs none of it. */
typedef long NTSTATUS;
typedef void *HANDLE;
typedef struct { unsigned short Length, MaximumLength; void *Buffer; } UNICODE_STRING;
typedef struct {
    unsigned long Length;
    HANDLE RootDirectory;
    UNICODE_STRING *ObjectName;
    unsigned long Attributes;
    void *SecurityDescriptor, *SecurityQualityOfService;
} OBJECT_ATTRIBUTES;
typedef struct { union { NTSTATUS Status; void *Pointer; } u; unsigned long long Information; } IO_STATUS_BLOCK;
typedef struct {
    union { unsigned char ReplaceIfExists; unsigned long Flags; } u;
    HANDLE RootDirectory;
    unsigned long FileNameLength;
    unsigned short FileName[1];
} RENAME;

__declspec(dllimport) NTSTATUS NtOpenFile(HANDLE *, unsigned long, OBJECT_ATTRIBUTES *, IO_STATUS_BLOCK *, unsigned long, unsigned long);
__declspec(dllimport) NTSTATUS NtQueryInformationFile(HANDLE, IO_STATUS_BLOCK *, void *, unsigned long, unsigned long);
__declspec(dllimport) NTSTATUS NtClose(HANDLE);
/* The real one has the name that this library exports; its import gets another one (ntreal.def). */
__declspec(dllimport) NTSTATUS RealSetInformationFile(HANDLE, IO_STATUS_BLOCK *, void *, unsigned long, unsigned long);
__declspec(dllimport) NTSTATUS RealQueryAttributesFile(OBJECT_ATTRIBUTES *, void *);

#define NOT_IMPLEMENTED ((NTSTATUS)0xC0000002)
#define INVALID_INFO_CLASS ((NTSTATUS)0xC0000003)
#define INVALID_PARAMETER ((NTSTATUS)0xC000000D)

/* Wine knows byte range locks with no status block only. One zig at a time needs none. */
NTSTATUS ShimLockFile(HANDLE f, HANDLE e, void *a, void *c, IO_STATUS_BLOCK *io) {
    (void)f; (void)e; (void)a; (void)c;
    if (io) { io->u.Status = 0; io->Information = 0; }
    return 0;
}

NTSTATUS ShimUnlockFile(HANDLE f, IO_STATUS_BLOCK *io) {
    (void)f;
    if (io) { io->u.Status = 0; io->Information = 0; }
    return 0;
}

/* Wine looks up a name relative to a folder's handle in the working folder. */
NTSTATUS ShimQueryAttributesFile(OBJECT_ATTRIBUTES *what, void *basic) {
    if (!what->RootDirectory) return RealQueryAttributesFile(what, basic);
    HANDLE file = 0;
    IO_STATUS_BLOCK io;
    NTSTATUS status = NtOpenFile(&file, 0x00100080, what, &io, 7, 0x20);
    if (status < 0) return status;
    status = NtQueryInformationFile(file, &io, basic, 40, 4);
    NtClose(file);
    return status;
}

/* Wine 8 has neither FileDispositionInformationEx (64) nor FileRenameInformationEx (65). */
NTSTATUS ShimSetInformationFile(HANDLE file, IO_STATUS_BLOCK *io, void *data, unsigned long size, unsigned long kind) {
    NTSTATUS status = RealSetInformationFile(file, io, data, size, kind);
    if (status != NOT_IMPLEMENTED && status != INVALID_INFO_CLASS && status != INVALID_PARAMETER) return status;
    if (kind == 64) {
        unsigned char gone = *(unsigned long *)data & 1;
        return RealSetInformationFile(file, io, &gone, 1, 13);
    }
    if (kind == 65) {
        RENAME *rename = data;
        rename->u.Flags &= 1;
        return RealSetInformationFile(file, io, data, size, 10);
    }
    return status;
}

int DllMain(void *module, unsigned long reason, void *reserved) {
    (void)module; (void)reason; (void)reserved;
    return 1;
}

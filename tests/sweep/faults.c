/* Make the N-th system call of a kind fail in the process that preloads this library.

   The file named by FAULTS_CONTROL is mapped as `struct control`, and a driver in another process writes to it. Nothing
   is counted before `armed` is set. Opening the path MARK sets it from inside, so that the imports of a start do not
   count. The call fails without being made, as it does in the kernel. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MARK "/wiretape-fault-mark"

enum kind { OPEN, WRITE, SYNC, RENAME, SOCKET, ACCEPT, THREAD, KINDS };

struct control {
    volatile int32_t armed, kind, nth, error, on, hits, counts[KINDS];
    char about[256];
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = path == NULL ? -1 : real(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        control = mapped;
    close(fd);
}

/* Whether this call fails; `errno` is set then. */
static int fails(enum kind kind, const char *path, int fd)
{
    if (control == NULL || !control->armed)
        return 0;
    int n = __sync_add_and_fetch(&control->counts[kind], 1);
    if (control->kind != (int)kind || !(n == control->nth || (control->on && n > control->nth)))
        return 0;
    if (__sync_add_and_fetch(&control->hits, 1) == 1) {
        char link[64];
        ssize_t size = 0;
        if (path != NULL)
            size = snprintf(control->about, sizeof control->about, "%s", path);
        else if (fd >= 0) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            size = readlink(link, control->about, sizeof control->about - 1);
        }
        control->about[size < 0 ? 0 : size < 255 ? size : 255] = 0;
    }
    errno = control->error;
    return 1;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        if (control != NULL && strcmp(path, MARK) == 0) { \
            control->armed = 1; \
            return real(path, flags, mode); \
        } \
        return fails(OPEN, path, -1) ? -1 : real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        return fails(OPEN, path, -1) ? -1 : real(folder, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

DIR *opendir(const char *path)
{
    REAL(opendir);
    return fails(OPEN, path, -1) ? NULL : real(path);
}

#define CALL(type, name, kind, path, fd, parameters, arguments) \
    type name parameters \
    { \
        REAL(name); \
        return fails(kind, path, fd) ? -1 : real arguments; \
    }
CALL(ssize_t, write, WRITE, NULL, fd, (int fd, const void *data, size_t size), (fd, data, size))
CALL(ssize_t, writev, WRITE, NULL, fd, (int fd, const struct iovec *parts, int count), (fd, parts, count))
CALL(ssize_t, pwrite, WRITE, NULL, fd, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
CALL(ssize_t, pwrite64, WRITE, NULL, fd, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
CALL(int, ftruncate, WRITE, NULL, fd, (int fd, off_t size), (fd, size))
CALL(int, ftruncate64, WRITE, NULL, fd, (int fd, off64_t size), (fd, size))
CALL(int, fsync, SYNC, NULL, fd, (int fd), (fd))
CALL(int, fdatasync, SYNC, NULL, fd, (int fd), (fd))
CALL(int, syncfs, SYNC, NULL, fd, (int fd), (fd))
CALL(int, rename, RENAME, from, -1, (const char *from, const char *to), (from, to))
CALL(int, renameat, RENAME, from, -1, (int a, const char *from, int b, const char *to), (a, from, b, to))
CALL(int, link, RENAME, from, -1, (const char *from, const char *to), (from, to))
CALL(int, unlink, RENAME, path, -1, (const char *path), (path))
CALL(int, mkdir, RENAME, path, -1, (const char *path, mode_t mode), (path, mode))
CALL(int, rmdir, RENAME, path, -1, (const char *path), (path))
CALL(int, socket, SOCKET, NULL, -1, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, accept, ACCEPT, NULL, -1, (int fd, struct sockaddr *peer, socklen_t *size), (fd, peer, size))
CALL(int, accept4, ACCEPT, NULL, -1, (int fd, struct sockaddr *peer, socklen_t *size, int flags),
     (fd, peer, size, flags))

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *given)
{
    REAL(pthread_create);
    return fails(THREAD, NULL, -1) ? errno : real(thread, how, run, given);
}

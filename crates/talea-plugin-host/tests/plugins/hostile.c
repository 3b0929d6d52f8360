/*
 * A plugin that tries to break out: each call by which it could reach a file, a process, the
 * network or a right. It tries them in a constructor, which is the first code of a plugin, and in
 * `accept`.
 *
 * Each call writes a line to standard error, "can NAME" or "cannot NAME: ERROR". "--" ends the
 * forbidden calls, "==" the permitted ones that follow.
 *
 * Model: DAEMON is a process that the plugin must not reach. `accept` refuses if any call had an
 * unexpected result.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "talea_plugin.h"

#ifndef DAEMON
#define DAEMON 1
#endif

/* Number of forbidden calls that have succeeded, and of permitted calls that have failed. */
static int faults;
static int forbidden;
static int32_t low;

#ifdef PACKED
/* The log has few lines of a plugin per second: many answers share a line. */
static char line[480];
static size_t used;
static void end_line(void)
{
    if (used > 0)
        dprintf(2, "%s\n", line);
    used = 0;
}
#endif

static void answer(const char *name, int can, int error)
{
    faults += can == forbidden;
#ifdef PACKED
    used += (size_t)snprintf(line + used, sizeof line - used, "%s %s %s; ",
                             can ? "can" : "cannot", name, can ? "" : strerrorname_np(error));
    if (used > 400)
        end_line();
#else
    if (can)
        dprintf(2, "can %s\n", name);
    else
        dprintf(2, "cannot %s: %s\n", name, strerror(error));
#endif
}

static void mark(const char *text)
{
#ifdef PACKED
    end_line();
#endif
    dprintf(2, "%s\n", text);
}

#define TRY(name, call) do { errno = 0; int can = (call); answer(name, can, errno); } while (0)

static ssize_t sends_a_descriptor(void)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec data = { &byte, 0 };
    struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    return sendmsg(3, &message, MSG_DONTWAIT) + 1;
}

static const char *daemon_file(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)DAEMON, name);
    return path;
}

static void try_all(void)
{
    struct sched_param high = { .sched_priority = 1 };
    struct rlimit limit = { 1000000, 1000000 };
    struct timespec now;
    char bytes[8], ring[256] = { 0 };
    struct iovec data = { bytes, sizeof bytes };
    cpu_set_t cpus;
    timer_t timer;
    int pair[2];
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    forbidden = 1;
    TRY("read /etc/passwd", open("/etc/passwd", O_RDONLY) >= 0);
    TRY("read /proc/self/stat", open("/proc/self/stat", O_RDONLY) >= 0);
    TRY("read /proc of the daemon", open(daemon_file("maps"), O_RDONLY) >= 0);
    TRY("read the memory of the daemon", open(daemon_file("mem"), O_RDONLY) >= 0);
    TRY("list /proc", opendir("/proc") != 0);
    TRY("list /", opendir("/") != 0);
    TRY("read /dev/zero", open("/dev/zero", O_RDONLY) >= 0);
    TRY("create a file", open("/tmp/talea-plugin-was-here", O_CREAT | O_WRONLY, 0600) >= 0);
    TRY("create a file without O_CREAT", creat("/tmp/talea-plugin-was-here", 0600) >= 0);
    TRY("rename", rename("/tmp/a", "/tmp/b") == 0 || errno != EPERM);
    TRY("unlink", unlink("/tmp/talea-nothing") == 0 || errno != EPERM);
    TRY("mkdir", mkdir("/tmp/talea-plugin-was-here", 0700) == 0);
    TRY("chmod", chmod("/tmp", 0777) == 0 || errno != EPERM);
    TRY("symlink", symlink("/", "/tmp/talea-plugin-was-here") == 0);
    TRY("memfd_create", syscall(SYS_memfd_create, "m", 0) >= 0);
    TRY("Unix socket", socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    TRY("Internet socket", socket(AF_INET, SOCK_DGRAM, 0) >= 0);
    TRY("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    TRY("send a descriptor", sends_a_descriptor() > 0);
    TRY("signal the daemon", kill(DAEMON, 0) == 0);
    TRY("signal the daemon's group", kill(0, 0) == 0);
    TRY("signal by a file", fcntl(2, F_SETOWN, DAEMON) == 0);
    TRY("pidfd_open", syscall(SYS_pidfd_open, DAEMON, 0) >= 0);
    TRY("ptrace", ptrace(PTRACE_ATTACH, DAEMON, 0, 0) == 0);
    TRY("process_vm_readv", process_vm_readv(DAEMON, &data, 1, &data, 1, 0) >= 0);
    TRY("prlimit of the daemon", prlimit(DAEMON, RLIMIT_CPU, 0, &limit) == 0);
    TRY("fork", fork() >= 0);
    TRY("vfork", syscall(SYS_vfork) >= 0);
    TRY("a thread",
        syscall(SYS_clone, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD, 0, 0, 0, 0) >= 0);
    TRY("exec", execl("/bin/true", "true", (char *)0) == 0);
    TRY("own real-time priority", sched_setscheduler(0, SCHED_FIFO, &high) == 0);
    TRY("own affinity", sched_setaffinity(0, sizeof cpus, &cpus) == 0);
    TRY("the daemon's priority", setpriority(PRIO_PROCESS, DAEMON, 19) == 0);
    TRY("own nice value", nice(-5) != -1);
    TRY("setuid", setuid(0) == 0);
    TRY("user namespace", unshare(CLONE_NEWUSER) == 0);
    TRY("mount", mount("none", "/tmp", "tmpfs", 0, 0) == 0);
    TRY("io_uring", syscall(SYS_io_uring_setup, 1, &ring) >= 0);
    TRY("bpf", syscall(SYS_bpf, 0, &ring, sizeof ring) >= 0);
    TRY("perf_event_open", syscall(SYS_perf_event_open, &ring, 0, -1, -1, 0) >= 0);
    TRY("keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0) >= 0);
    TRY("shared memory", shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0);
    TRY("a timer that signals", timer_create(CLOCK_MONOTONIC, 0, &timer) == 0);
    TRY("another limit of memory", setrlimit(RLIMIT_AS, &limit) == 0);
    mark("--");
    forbidden = 0;
    TRY("memory", malloc(1 << 20) != 0);
    TRY("time", clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    TRY("flags of standard error", fcntl(2, F_GETFL) >= 0);
    TRY("libraries", open("/usr/lib", O_RDONLY | O_DIRECTORY) >= 0);
    mark("==");
}

__attribute__((constructor)) static void constructor(void) { try_all(); }

static int32_t init(const struct talea_plugin_setup *setup, void **self)
{
    (void)self;
    low = setup->priority_low;
    return geteuid() == 0;
}

static int32_t judge(void *self, const struct talea_plugin_task *task,
                     struct talea_plugin_place *place)
{
    (void)self, (void)task;
    try_all();
    place->cpu = 0;
    place->priority = low;
    return faults == 0 ? TALEA_PLUGIN_OK : TALEA_PLUGIN_NO;
}

static int32_t change(void *self, uint64_t id, const struct talea_plugin_task *task,
                      struct talea_plugin_place *place)
{
    (void)self, (void)id, (void)task, (void)place;
    return TALEA_PLUGIN_NO;
}

static void schedule(void *self, uint64_t id, const struct talea_plugin_task *task,
                     const struct talea_plugin_place *place)
{
    (void)self, (void)id, (void)task, (void)place;
}

static void news(void *self, uint64_t id) { (void)self, (void)id; }

const struct talea_plugin *talea_plugin_entry(uint32_t abi)
{
    static const struct talea_plugin plugin = {
        .size = sizeof plugin, .abi = TALEA_PLUGIN_ABI, .init = init, .accept = judge,
        .change = change, .schedule = schedule, .release = news, .attach = news, .detach = news,
    };
    return abi == TALEA_PLUGIN_ABI ? &plugin : NULL;
}

/* Time partitions as an ordinary process makes them, after the loop of a653rs-linux: it thaws the
 * control group of a window's program, sleeps for the length of the window, and freezes the group.
 * No thread has a real-time policy.
 * Arguments: CPU, program, length of the frame in us, and for each window an empty control group
 * (v2), its start and its length in us. Prints the start of the first frame in ns of
 * CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct window {
	const char *group;
	long long start, length;
};

static long long now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Sleeps relative to the clock, as the loop does. */
static void sleep_until(long long at)
{
	long long rest = at - now();
	struct timespec time = { rest / 1000000000LL, rest % 1000000000LL };
	if (rest > 0)
		nanosleep(&time, NULL);
}

static int put(const char *group, const char *file, const char *text)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", group, file);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int failed = fd == -1 || write(fd, text, strlen(text)) == -1;
	if (fd != -1)
		close(fd);
	return failed;
}

static int start(const char *program, const char *group, int cpu)
{
	cpu_set_t set;
	if (fork() != 0)
		return 0;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0 || put(group, "cgroup.procs", "0"))
		_exit(1);
	execl(program, program, NULL);
	_exit(1);
}

int main(int count, char **words)
{
	struct window windows[8];
	int windows_count = 0;
	long long frame = atoll(words[3]) * 1000;
	for (int at = 4; at + 2 < count && windows_count < 8; at += 3) {
		struct window window = { words[at], atoll(words[at + 1]) * 1000,
					 atoll(words[at + 2]) * 1000 };
		windows[windows_count++] = window;
		if (put(window.group, "cgroup.freeze", "1") ||
		    start(words[2], window.group, atoi(words[1])))
			return 1;
	}
	long long zero = now() + 100000000;
	printf("{\"zero_ns\": %lld}\n", zero);
	fflush(stdout);
	for (long long begin = zero;; begin += frame) {
		for (int at = 0; at < windows_count; at++) {
			struct window *window = &windows[at];
			sleep_until(begin + window->start);
			if (put(window->group, "cgroup.freeze", "0"))
				return 1;
			sleep_until(begin + window->start + window->length);
			if (put(window->group, "cgroup.freeze", "1"))
				return 1;
		}
	}
}

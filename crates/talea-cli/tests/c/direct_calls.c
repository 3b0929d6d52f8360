/* A static program that makes scheduling calls without a C library's wrappers.
 *
 * Each argument is a call. The program prints its result (0 or the error number) and what it reads
 * back: policy, priority, nice value and runtime. `pause` waits for a line, `fork:N` makes the next
 * call in N children at once, `often:N` measures N pairs of a call for SCHED_FIFO and one for
 * SCHED_OTHER, `spin:N` counts for N ms how often it reads which policy.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static int set(int target, int policy, int priority)
{
	return (int)syscall(SYS_sched_setscheduler, target, policy, &priority);
}

static int set_attr(struct attr attr)
{
	attr.size = sizeof(attr);
	return (int)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static int call(const char *word)
{
	long a = 0, b = 0, c = 0;
	const char *colon = strchr(word, ':');

	if (colon)
		sscanf(colon + 1, "%ld:%ld:%ld", &a, &b, &c);
	if (!strncmp(word, "fifo", 4))
		return set(0, SCHED_FIFO, (int)a);
	if (!strncmp(word, "rr", 2))
		return set(0, SCHED_RR, (int)a);
	if (!strncmp(word, "other", 5))
		return set(0, SCHED_OTHER, 0);
	if (!strncmp(word, "batch", 5))
		return set_attr((struct attr){ .policy = SCHED_BATCH, .nice = (int)a });
	if (!strncmp(word, "param", 5)) {
		int priority = (int)a;
		return (int)syscall(SYS_sched_setparam, 0, &priority);
	}
	if (!strncmp(word, "nice", 4))
		return (int)syscall(SYS_setpriority, PRIO_PROCESS, 0, (int)a);
	if (!strncmp(word, "dl", 2))
		return set_attr((struct attr){ .policy = 6, .runtime = (uint64_t)a,
					       .deadline = (uint64_t)b, .period = (uint64_t)c });
	if (!strncmp(word, "reclaim", 7))
		return set_attr((struct attr){ .policy = 6, .flags = 2, .runtime = (uint64_t)a,
					       .deadline = (uint64_t)b, .period = (uint64_t)c });
	if (!strncmp(word, "of", 2))
		return set((int)a, SCHED_FIFO, 10);
	if (!strncmp(word, "null", 4))
		return (int)syscall(SYS_sched_setattr, 0, NULL, 0);
	if (!strncmp(word, "bad", 3))
		return (int)syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, (void *)8);
	fprintf(stderr, "unknown call %s\n", word);
	exit(99);
}

static int compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void often(int count)
{
	int64_t *took = calloc((size_t)count, sizeof(*took));
	int failed = 0;

	for (int i = 0; i < count; i++) {
		int64_t start = now();
		failed += set(0, SCHED_FIFO, 10) != 0;
		took[i] = now() - start;
		failed += set(0, SCHED_OTHER, 0) != 0;
	}
	qsort(took, (size_t)count, sizeof(*took), compare);
	printf("often: %d failed, median %lld ns\n", failed, (long long)took[count / 2]);
	free(took);
}

static void spin(long milliseconds)
{
	int64_t end = now() + milliseconds * 1000000;
	long fifo = 0, other = 0;

	while (now() < end) {
		int policy = (int)syscall(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK;
		fifo += policy == SCHED_FIFO;
		other += policy == SCHED_OTHER;
	}
	printf("spin: %s %s\n", fifo ? "fifo" : "-", other ? "other" : "-");
}

static void in_children(int count, const char *word)
{
	int granted = 0;

	for (int i = 0; i < count; i++)
		if (fork() == 0) {
			int failed = call(word);
			int policy = (int)syscall(SYS_sched_getscheduler, 0);
			_exit(failed ? 1 : (policy & ~SCHED_RESET_ON_FORK) == SCHED_FIFO ? 0 : 2);
		}
	for (int status; wait(&status) > 0;)
		granted += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	printf("fork: %d of %d granted\n", granted, count);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i < argc; i++) {
		struct attr attr = { 0 };
		int result;

		if (!strcmp(argv[i], "pause")) {
			printf("pause %d\n", getpid());
			while (getchar() > '\n')
				;
			continue;
		}
		if (!strncmp(argv[i], "often:", 6)) {
			often(atoi(argv[i] + 6));
			continue;
		}
		if (!strncmp(argv[i], "spin:", 5)) {
			spin(atoi(argv[i] + 5));
			continue;
		}
		if (!strncmp(argv[i], "fork:", 5)) {
			in_children(atoi(argv[i] + 5), argv[i + 1]);
			i++;
			continue;
		}
		errno = 0;
		result = call(argv[i]) ? errno : 0;
		syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0);
		printf("%s = %d; policy %u, priority %u, nice %d, runtime %llu\n", argv[i], result,
		       attr.policy, attr.priority, attr.nice, (unsigned long long)attr.runtime);
	}
	return 0;
}

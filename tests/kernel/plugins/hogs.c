/* Demands the CPU in as many ways as a program can: threads, their children, and a process that has
 * left the session and lost its parent.
 * With an argument: repeatedly sleeps so many milliseconds and works one. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *spin(void *unused)
{
	for (volatile unsigned long count = 0;; count++)
		;
	return unused;
}

static void *parent(void *unused)
{
	if (fork() == 0)
		spin(unused);
	return spin(unused);
}

static long used(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int count, char **words)
{
	pthread_t thread;
	if (count > 1) {
		struct timespec pause_time = { 0, atol(words[1]) * 1000000L };
		for (;;) {
			nanosleep(&pause_time, NULL);
			for (long end = used() + 1000000; used() < end;)
				;
		}
	}
	for (int each = 0; each < 3; each++)
		pthread_create(&thread, NULL, parent, NULL);
	if (fork() == 0) {
		setsid();
		if (fork() == 0)
			spin(NULL);
		_exit(0);
	}
	spin(NULL);
	return 0;
}

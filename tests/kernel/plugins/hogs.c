/* Wants the CPU in as many ways as a program can: threads, children of theirs, and one that has left the session and lost its parent.
 * With an argument: sleeps so many milliseconds and works one, again and again. */
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
		struct timespec nap = { 0, atol(words[1]) * 1000000L };
		for (;;) {
			nanosleep(&nap, NULL);
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

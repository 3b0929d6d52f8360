/* Requests a policy or affinity other than its run has ordered, and then spins. Ends with 3 if the
 * kernel refuses. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

static int asks(const char *what)
{
	struct sched_param none = { 0 }, most = { 99 };
	cpu_set_t all;
	if (strcmp(what, "fifo") == 0)
		return sched_setscheduler(0, SCHED_FIFO, &most);
	if (strcmp(what, "rr") == 0)
		return sched_setscheduler(0, SCHED_RR, &most);
	if (strcmp(what, "other") == 0)
		return sched_setscheduler(0, SCHED_OTHER, &none);
	memset(&all, 0xff, sizeof all);
	return sched_setaffinity(0, sizeof all, &all);
}

/* A thread of its own: it is not only the first that is looked at. */
static void *thread(void *what)
{
	if (asks(what) != 0)
		_exit(3);
	for (volatile unsigned long count = 0;; count++)
		;
	return what;
}

int main(int count, char **words)
{
	pthread_t other;
	if (count < 2 || pthread_create(&other, NULL, thread, words[1]) != 0)
		return 4;
	pthread_join(other, NULL);
	return 0;
}

/* Wakes up at absolute times and works; prints the response of each job by its own clock.
 * Arguments: period and work in microseconds, number of jobs, file. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long read_clock(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(int count, char **words)
{
	if (count != 5)
		return 2;
	long period = atol(words[1]) * 1000, work = atol(words[2]) * 1000, jobs = atol(words[3]);
	long *responses = calloc(jobs, sizeof *responses);
	long due = read_clock(CLOCK_MONOTONIC) + period;

	for (long job = 0; job < jobs; job++, due += period) {
		struct timespec until = { due / 1000000000, due % 1000000000 };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		long end = read_clock(CLOCK_THREAD_CPUTIME_ID) + work;
		while (read_clock(CLOCK_THREAD_CPUTIME_ID) < end)
			;
		responses[job] = read_clock(CLOCK_MONOTONIC) - due;
	}
	FILE *file = fopen(words[4], "w");
	for (long job = 0; file && job < jobs; job++)
		fprintf(file, "%ld\n", responses[job]);
	return file == NULL;
}

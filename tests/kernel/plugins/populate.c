/* Stays inside of system calls: each maps half a gibibyte, and the kernel fills all pages of it. */
#define _GNU_SOURCE
#include <sys/mman.h>

int main(void)
{
	const unsigned long size = 512UL << 20;

	for (;;) {
		void *pages = mmap(0, size, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (pages == MAP_FAILED)
			return 1;
		munmap(pages, size);
	}
}

/* Shared by the test programs. A failed check prints its place and ends the program with 1. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition,      \
                    errno);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif

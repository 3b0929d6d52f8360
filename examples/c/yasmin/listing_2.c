/*
 * Listing 2 of the YASMIN paper (Rouxel, Altmeyer, Grelck, Middleware 2021): the tasks fork, left
 * (in two versions), right and join.
 *
 *     cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I. listing_2.c \
 *        $(pkg-config --cflags --libs talea)
 *
 * Corrections that make the listing valid C, by its line numbers:
 *
 *     -       The includes and get_val_from_specific_accel are added.
 *     1       A semicolon follows the structure.
 *     10, 11  The variable has a name; a semicolon follows channel_push.
 *     14      The variable of type `struct token` has the name rec_token.
 *     27, 31  The channel is lj; a channel 1 does not exist.
 *     29      `unsued` is spelt `unused`. All unused arguments are cast to void.
 *     34      The four dots are replaced by a battery level that begins at 20 and decreases by 1
 *             at each call, and the function returns it.
 *     35      main returns int and casts its arguments to void.
 *     36      The structures are initialised; the listing leaves members indeterminate.
 *     37      lv1id and aid are used.
 *     43-60   The "other tasks" and "other channel connections" are declared.
 *     53, 54  left_v1 reads its argument, so version_decl passes one, as in Table 1.
 *     65      The awaited event is the tenth join.
 *
 * Further additions are the printed summary, with its counters, and the check of start(), which
 * returns false if a declaration was refused.
 */
#include "config.h"
#include <stdio.h>
#include <threads.h>
#include <yasmin.h>

/* Counters and received values for the summary. */
static int joins, received[3], versions[2];

static int get_val_from_specific_accel(void)
{
    return 4; /* stands for a random number from the accelerator */
}

struct token { int value; };
/*declare a dependency without data exchange*/
channel_decl(fl, char, 0);
/*declare dependencies with data exchange*/
channel_decl(fr, struct token, 1);
channel_decl(rj, int, 2);
channel_decl(lj, int, 1);

void fork(void *arg) {
  (void)arg;
  struct token token; token.value = 2;
  channel_push(fr, token);
}
void right(void *arg) {
  (void)arg;
  struct token rec_token;
  channel_pop(fr, &rec_token);
  channel_push(rj, rec_token.value);
  channel_push(rj, rec_token.value*2);
}
void join(void *arg) {
  (void)arg;
  int rec_data;
  channel_pop(rj, &rec_data);
  received[0] = rec_data;
  channel_pop(rj, &rec_data);
  received[1] = rec_data;
  channel_pop(lj, &rec_data);
  received[2] = rec_data;
  __atomic_add_fetch(&joins, 1, __ATOMIC_RELEASE);
}
void left_v1(void *arg) {
  int *a = (int*) arg;
  versions[0]++;
  channel_push(lj, *a);
}
void left_v2(void *unused) {
  (void)unused;
  int val = get_val_from_specific_accel();
  versions[1]++;
  channel_push(lj, val);
}
/*User defined function to get the battery status*/
static uint64_t current_battery_level(void) {
  static uint64_t level = 21;
  return level > 0 ? --level : 0;
}

int main(int argc, char **argv) {
  TData f = YAS_TDATA_INIT, j = f, r = f, l = f; TID fid, jid, rid, lid;
  VID lv1id, lv2id; HID aid;
  /*Due to the given configuration, the required information to select a version is energy budget*/
  VSelect lv1_select, lv2_select;
  static int one = 1;
  (void)argc, (void)argv;

  init(); // initialise YASMIN

  f.name = "fork"; f.period = 250;
  j.name = "join"; r.name = "right";
  l.name = "left";
  lv1_select.energy_budget = 5;
  lv2_select.energy_budget = 12;
  lv1_select.get_battery_status =
    lv2_select.get_battery_status = current_battery_level;

  fid = task_decl(&f, fork, NULL);
  jid = task_decl(&j, join, NULL);
  rid = task_decl(&r, right, NULL);
  lid = task_decl(&l);
  lv1id = version_decl(lid, left_v1, &one, lv1_select);
  lv2id = version_decl(lid, left_v2, lv2_select);

  aid = hwaccel_decl("quantum_rand_num_generator");
  hwaccel_use(lid, lv2id, aid);

  channel_connect(fid, rid, fr);
  channel_connect(rid, jid, rj);
  channel_connect(fid, lid, fl);
  channel_connect(lid, jid, lj);

  if (!start()) { // Start the schedule
    fprintf(stderr, "cannot start: %s\n", yas_message());
    return 1;
  }
  //wait for some event
  while (__atomic_load_n(&joins, __ATOMIC_ACQUIRE) < 10)
    thrd_sleep(&(struct timespec){ 0, 10000000 }, NULL);
  stop(); // Stop the schedule
  cleanup(); // Cleanup before exiting
  printf("%d joins; the last received %d and %d from right, %d from left; "
         "left ran %d times on the accelerator, %d times without it\n",
         joins, received[0], received[1], received[2], versions[lv2id], versions[lv1id]);
  return 0;
}

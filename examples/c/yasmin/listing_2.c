/*
 * Listing 2 of the paper (Rouxel, Altmeyer, Grelck, Middleware 2021): fork, two halves, one of them in two versions, join.
 *
 *     cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I. listing_2.c $(pkg-config --cflags --libs talea)
 *
 * What was corrected, so that it is C (lines of the listing):
 *
 *     -       the includes, which it does not show; get_val_from_specific_accel, which it does not define
 *     1       a semicolon behind the structure
 *     10      the variable has a name; a semicolon behind channel_push in line 11
 *     14      `struct rec_token` has a name, too
 *     27, 31  the channel is lj: there is no channel 1
 *     29      `unsued` is spelt as the comment means it, and said not to be used, like the other unused arguments
 *     34      the function has a result; its four dots are a battery that falls from 20 by 1 at each question
 *     35      main returns int, and its arguments are not used
 *     36      the structures begin with what is not said of a task: their other members were indeterminate
 *     37      lv1id and aid are used, or said not to be
 *     53, 54  left_v1 reads what its argument points to, so it is given one, as Table 1 has it
 *     43-60   "other tasks", "other channel connections": declared
 *     65      the event is waited for: ten joins
 *
 * Only what is printed was added beyond that, and return codes: start() is false when something was refused.
 */
#include "config.h"
#include <stdio.h>
#include <threads.h>
#include <yasmin.h>

/* What the tasks have seen, for the line at the end. */
static int joins, seen[3], versions[2];

static int get_val_from_specific_accel(void)
{
    return 4; /* chosen by a fair die */
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
  seen[0] = rec_data;
  channel_pop(rj, &rec_data);
  seen[1] = rec_data;
  channel_pop(lj, &rec_data);
  seen[2] = rec_data;
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
static uint64_t current_battery_level(void) { static uint64_t level = 21; return level > 0 ? --level : 0; }

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
    fprintf(stderr, "not started: %s\n", yas_message());
    return 1;
  }
  //wait for some event
  while (__atomic_load_n(&joins, __ATOMIC_ACQUIRE) < 10)
    thrd_sleep(&(struct timespec){ 0, 10000000 }, NULL);
  stop(); // Stop the schedule
  cleanup(); // Cleanup before exiting
  printf("%d joins; the last had %d and %d from the right and %d from the left; left ran %d times on the accelerator, %d times without\n",
         joins, seen[0], seen[1], seen[2], versions[lv2id], versions[lv1id]);
  return 0;
}

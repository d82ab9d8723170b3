/* Holds the namespaces of a Pod and reaps what ends in them. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(int signal) { (void)signal; _exit(0); }
static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, 0, WNOHANG) > 0) {
  }
}

int main(void) {
  signal(SIGINT, die);
  signal(SIGTERM, die);
  signal(SIGCHLD, reap);
  for (;;) pause();
}

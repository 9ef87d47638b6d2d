// Runs PROGRAM with a clock that is SECONDS off, also in all that it starts: programs that are linked statically take
// no library in the place of libc's functions. Without its vDSO, a program asks the kernel for the time, and the answer
// to that is given here.
#define _GNU_SOURCE
#include <errno.h>
#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t program;

static void pass_on(int signal) { kill(program, signal); }

static long peek(pid_t of, unsigned long at) { return ptrace(PTRACE_PEEKDATA, of, at, 0); }

static void start(char **arguments) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
  ptrace(PTRACE_TRACEME, 0, 0, 0);
  raise(SIGSTOP);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(126);
  execv(PROGRAM, arguments);
  _exit(127);
}

// Removes the vDSO from what the kernel tells a new program: after its arguments and its variables.
static void hide_vdso(pid_t of) {
  struct user_regs_struct registers;
  ptrace(PTRACE_GETREGS, of, 0, &registers);
  unsigned long at = registers.rsp + 8 * (peek(of, registers.rsp) + 2);
  while (peek(of, at)) at += 8;
  for (at += 8; peek(of, at) != AT_NULL; at += 16)
    if (peek(of, at) == AT_SYSINFO_EHDR) ptrace(PTRACE_POKEDATA, of, at, AT_IGNORE);
}

// Answers clock_gettime.
static void tell(pid_t to) {
  struct user_regs_struct registers;
  struct timespec now;
  ptrace(PTRACE_GETREGS, to, 0, &registers);
  if (registers.rdi != CLOCK_REALTIME && registers.rdi != CLOCK_REALTIME_COARSE) return;
  clock_gettime(CLOCK_REALTIME, &now);
  ptrace(PTRACE_POKEDATA, to, registers.rsi, now.tv_sec + (SECONDS));
  ptrace(PTRACE_POKEDATA, to, registers.rsi + 8, now.tv_nsec);
  registers.orig_rax = -1;
  registers.rax = 0;
  ptrace(PTRACE_SETREGS, to, 0, &registers);
}

int main(int count, char **arguments) {
  (void)count;
  program = fork();
  if (program == 0) start(arguments);
  int status;
  waitpid(program, &status, 0);
  ptrace(PTRACE_SETOPTIONS, program, 0,
         PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
             PTRACE_O_TRACESECCOMP);
  int passed_on[] = {SIGTERM, SIGINT, SIGHUP};
  for (size_t at = 0; at < sizeof passed_on / sizeof *passed_on; at++) signal(passed_on[at], pass_on);
  ptrace(PTRACE_CONT, program, 0, 0);
  for (;;) {
    pid_t of = waitpid(-1, &status, __WALL);
    if (of == program && WIFEXITED(status)) exit(WEXITSTATUS(status));
    if (of == program && WIFSIGNALED(status)) exit(128 + WTERMSIG(status));
    if (of < 0 && errno == ECHILD) exit(125);
    if (of < 0 || !WIFSTOPPED(status)) continue;
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXEC) hide_vdso(of);
    if (event == PTRACE_EVENT_SECCOMP) tell(of);
    // New threads and processes begin stopped.
    ptrace(PTRACE_CONT, of, 0, event || signal == SIGSTOP ? 0 : signal);
  }
}

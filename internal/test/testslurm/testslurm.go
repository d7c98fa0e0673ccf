// Package testslurm provides tests with a real Slurm cluster on test hosts.
//
//	cluster := testslurm.Start(t, testslurm.Options{Nodes: 2, CPUs: 4})
//	out, err := cluster.Command(ctx, "sbatch", "job.sh").Output()
//
// The first host is the login node, which runs slurmctld and munged. Every
// other host is a compute node, which runs slurmd. All hosts share a home
// directory, as on most clusters. The programs are those of Debian's package
// slurm-wlm.
//
// Jobs in the partition urgent preempt jobs in the default partition, main.
// Slurm then requeues the preempted jobs.
//
// The cluster differs from a real one in two ways: Slurm does not confine jobs
// to their cores and devices, and all users are root. Slurm tracks processes
// by control groups, which requires the freezer of cgroup v1.
package testslurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// Options describes a cluster. Only Nodes must be set.
type Options struct {
	Nodes int // number of compute nodes, not counting the login node
	CPUs  int // CPUs of each node in Slurm's configuration; 0 means 4
	GPUs  int // fake GPUs of each node; 0 means that Slurm manages no GPUs
}

// Cluster is a Slurm cluster.
type Cluster struct {
	*testhosts.Cluster
	Login *testhosts.Host
	Nodes []*testhosts.Host
	// Home is the directory on the test's machine that is the home directory
	// on every host.
	Home string

	tb      testing.TB
	options Options
	dir     string // folder for state, logs and configuration, at the same path on the test's machine and on the hosts
}

// HomeThere is the path that the home directory has on the hosts.
func (c *Cluster) HomeThere() string {
	c.tb.Helper()
	root, err := user.LookupId("0")
	if err != nil {
		c.tb.Fatal(err)
	}
	return root.HomeDir
}

// limit is the timeout for the start of a daemon and for each change of state
// of a node or job.
const limit = time.Minute

// Start starts a cluster and stops it at the end of the test.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if o.CPUs == 0 {
		o.CPUs = 4
	}
	gpus := []int{0}
	for range o.Nodes {
		gpus = append(gpus, o.GPUs)
	}
	require(tb)
	tb.Cleanup(func() { // The cleanup runs after the hosts have ended, because Start registers it before the hosts' own.
		if out, err := exec.Command("sh", "-ec", ungroup, "sh", tb.TempDir()).CombinedOutput(); err != nil {
			tb.Errorf("testslurm: remove control groups: %v: %s", err, out)
		}
	})
	hosts := testhosts.Start(tb, testhosts.Options{Hosts: o.Nodes + 1, GPUs: gpus, SharedHome: true})
	c := &Cluster{Cluster: hosts, Login: hosts.Hosts[0], Nodes: hosts.Hosts[1:], Home: hosts.Hosts[0].HomeDir, tb: tb, options: o}
	if err := c.open(); err != nil {
		c.logDaemons()
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			c.logDaemons()
		}
	})
	return c
}

// require skips the test if Slurm is not installed; in CI it fails the test.
func require(tb testing.TB) {
	tb.Helper()
	for _, name := range []string{"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged", "srun", "salloc"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				tb.Fatal(err)
			}
			tb.Skip("testslurm: ", err)
		}
	}
}

// open writes Slurm's configuration and starts the daemons.
func (c *Cluster) open() (err error) {
	// The folder is in /var/tmp, which the hosts share with the test's
	// machine. Each host has its own /tmp.
	if c.dir, err = os.MkdirTemp("/var/tmp", "plx-slurm-"); err != nil {
		return err
	}
	c.tb.Cleanup(func() { os.RemoveAll(c.dir) }) // the error is ignored: it only means that files in /var/tmp are left
	if err := c.configure(); err != nil {
		return err
	}
	if err := c.daemon(c.Login, "/usr/sbin/munged", "--foreground", "--force", "--key-file="+c.path("munge.key"), "--socket="+c.path("munge.socket"),
		"--pid-file="+c.path("munge.pid"), "--log-file="+c.path("munged.log"), "--seed-file="+c.path("munge.seed")); err != nil {
		return err
	}
	if err := await(func() error { _, err := os.Stat(c.path("munge.socket")); return err }); err != nil {
		return err
	}
	if err := c.daemon(c.Login, "/usr/sbin/slurmctld", "-D", "-i", "-f", c.path("slurm.conf")); err != nil {
		return err
	}
	for _, h := range c.Nodes {
		if err := c.startSlurmd(h); err != nil {
			return err
		}
	}
	return c.AwaitState("idle", c.Nodes...)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// configure writes slurm.conf and the other configuration files of Slurm.
func (c *Cluster) configure() error {
	nodes, gres := "", ""
	for i, h := range c.Nodes {
		line := fmt.Sprintf("NodeName=%s NodeAddr=%s CPUs=%d RealMemory=1000", h.Name, h.Addr, c.options.CPUs)
		if n := c.options.GPUs; n > 0 {
			line += fmt.Sprintf(" Gres=gpu:%d", n)
			gres += fmt.Sprintf("NodeName=%s Name=gpu File=/dev/tty[%d-%d]\n", c.Nodes[i].Name, 0, n-1)
		}
		nodes += line + "\n"
	}
	text := fmt.Sprintf(`ClusterName=plx
SlurmctldHost=%[1]s(%[2]s)
SlurmUser=root
AuthInfo=socket=%[3]s/munge.socket
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool-%%n
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd-%%n.pid
SlurmctldLogFile=%[3]s/slurmctld.log
SlurmdLogFile=%[3]s/slurmd-%%n.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
MinJobAge=300
ReturnToService=2
SlurmdTimeout=10
KillWait=30
OverTimeLimit=0
JobRequeue=1
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
%[4]sPartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
`, c.Login.Name, c.Login.Addr, c.dir, nodes)
	for name, text := range map[string]string{
		"slurm.conf":  text,
		"gres.conf":   gres,
		"cgroup.conf": "CgroupPlugin=cgroup/v1\n",
		"munge.key":   strings.Repeat("a key of tests ", 8),
	} {
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.Mkdir(c.path("state"), 0o700)
}

// daemon starts a program on a host. The program runs until the host loses its
// power.
func (c *Cluster) daemon(h *testhosts.Host, name string, args ...string) error {
	cmd := h.Command(context.Background(), name, args...)
	log, err := os.OpenFile(c.path(filepath.Base(name)+"-"+h.Name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the daemon has a duplicate of the file, so an error of Close does not matter
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s on %s: %w", name, h.Name, err)
	}
	go cmd.Wait() // the status is ignored: the daemon is killed at the end of the test
	return nil
}

// groups is a script that gives a host its own hierarchy of control groups,
// inside a group of the test's machine. slurmd requires the root of a
// hierarchy and creates the folder slurm_HOST in it.
const groups = `[ -e /sys/fs/cgroup/freezer ] && exit
mkdir /run/freezer
mount -t cgroup -o freezer cgroup /run/freezer
mkdir -p /run/freezer/$1/slurm_$2
mount -t tmpfs tmpfs /sys/fs/cgroup
cd /sys/fs/cgroup
mkdir freezer freezer/slurm_$2
echo >freezer/release_agent
mount --bind /run/freezer/$1/slurm_$2 freezer/slurm_$2
for file in cgroup.procs tasks notify_on_release cgroup.clone_children; do
	touch freezer/$file
	mount --bind /run/freezer/$1/$file freezer/$file
done
cd /
umount --lazy /run/freezer`

// ungroup is a script that removes the control groups of all clusters whose
// folder is gone: the groups of the current test and of tests that were
// killed.
const ungroup = `mount -t cgroup -o freezer cgroup "$1"
for group in "$1"/plx-slurm-*; do
	name=${group##*/}
	if [ -d "$group" ] && [ ! -e "/var/tmp/${name%-*}" ]; then find "$group" -depth -type d -exec rmdir {} +; fi
done
umount "$1"`

// startSlurmd sets up the control groups of a host and starts slurmd on it.
func (c *Cluster) startSlurmd(h *testhosts.Host) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if out, err := h.Command(ctx, "sh", "-ec", groups, "sh", c.group(h), h.Name).CombinedOutput(); err != nil {
		return fmt.Errorf("give %s control groups: %w: %s", h.Name, err, out)
	}
	return c.daemon(h, "/usr/sbin/slurmd", "-D", "-N", h.Name, "-f", c.path("slurm.conf"))
}

// group is the name of the control group that the test's machine has for a
// host.
func (c *Cluster) group(h *testhosts.Host) string { return filepath.Base(c.dir) + "-" + h.Name }

// Command returns a command that runs on the login node.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := c.Login.Command(ctx, name, args...)
	cmd.Env = append(cmd.Env, "SLURM_CONF="+c.path("slurm.conf"))
	return cmd
}

// Run runs a command on the login node and returns its output without the
// final newline. If the command fails, the test fails.
func (c *Cluster) Run(name string, args ...string) string {
	c.tb.Helper()
	out, err := c.output(name, args...)
	if err != nil {
		c.tb.Fatal(err)
	}
	return out
}

func (c *Cluster) output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := c.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// AwaitState waits until sinfo reports the given state for all given nodes.
// The state is idle, alloc, drain or down.
func (c *Cluster) AwaitState(state string, nodes ...*testhosts.Host) error {
	var names []string
	for _, h := range nodes {
		names = append(names, h.Name)
	}
	return await(func() error {
		out, err := c.output("sinfo", "--noheader", "--Node", "--format=%t", "--nodes="+strings.Join(names, ","))
		if err == nil && strings.Trim(strings.ReplaceAll(out+"\n", state+"\n", ""), "\n") != "" {
			err = fmt.Errorf("nodes %s are %q, not %s", strings.Join(names, ","), strings.Fields(out), state)
		}
		return err
	})
}

// AwaitJob waits until squeue reports the given state for the job id, such as
// RUNNING or PENDING.
func (c *Cluster) AwaitJob(id, state string) {
	c.tb.Helper()
	err := await(func() error {
		out, err := c.output("squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T")
		if err == nil && strings.TrimSpace(out) != state {
			err = fmt.Errorf("job %s is %q, not %s", id, out, state)
		}
		return err
	})
	if err != nil {
		c.tb.Fatal(err)
	}
}

// KillSlurmd kills slurmd on a node, but not the processes that it has
// started.
func (c *Cluster) KillSlurmd(h *testhosts.Host) {
	c.tb.Helper()
	all, err := h.Strays()
	if err != nil {
		c.tb.Fatal(err)
	}
	for _, p := range all {
		if p.Name == "slurmd" {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				c.tb.Fatal(err)
			}
		}
	}
}

// StartSlurmd starts slurmd on a node again.
func (c *Cluster) StartSlurmd(h *testhosts.Host) {
	c.tb.Helper()
	if err := c.startSlurmd(h); err != nil {
		c.tb.Fatal(err)
	}
}

// AwaitIdle waits until the hosts run only Slurm's daemons and no job steps.
// If it has waited for the duration within, it returns an error that lists the
// other processes.
func (c *Cluster) AwaitIdle(within time.Duration) error {
	var last error
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		last = nil
		for _, h := range c.Hosts {
			last = errors.Join(last, c.idle(h))
		}
		if last == nil || time.Now().After(end) {
			return last
		}
	}
}

func (c *Cluster) idle(h *testhosts.Host) error {
	all, err := h.Strays()
	if err != nil {
		return err
	}
	var left []testhosts.Process
	for _, p := range all {
		if !slices.Contains([]string{"slurmd", "slurmctld", "slurmscriptd", "munged"}, p.Name) {
			left = append(left, p)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("host %s: processes are left: %v", h.Name, left)
	}
	return nil
}

// await calls check until it returns nil. When the constant limit has passed,
// await returns the last error of check.
func await(check func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// logDaemons logs the end of each daemon's output.
func (c *Cluster) logDaemons() {
	const most = 3000
	files, _ := filepath.Glob(c.path("*.out")) // Glob returns an error only for a malformed pattern
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			c.tb.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-most):])
		}
	}
}

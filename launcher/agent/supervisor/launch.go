//go:build linux

package supervisor

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// launch starts the process of one task.
type launch struct {
	*host
	task   *task
	layout protocol.Prepare // the tasks of this host
	start  protocol.Start   // the tasks of the job
	tell   func(string)     // called with a line for the user if output is lost
}

// run starts the process.
func (l launch) run() (*running, error) {
	own := filepath.Clean(l.folder.Task(l.task.Task))
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, err
	}
	dir, err := program.WorkingFolder(string(l.spec.Command.Chdir), own)
	if err != nil {
		return nil, err
	}
	cores := l.share()
	env := program.Environment(l.login, l.spec, l.contract(own, len(cores)), dir)
	command, err := program.Resolve(l.spec.Command, env, dir)
	if err != nil {
		return nil, err
	}
	r := &running{queue: make(chan outgoing, maxQueued)}
	ours, err := r.connect(l.task, l.folder.Logs(), l.tell)
	defer closeAll(ours)
	defer l.task.open.CloseSocket()
	if err == nil {
		if !l.spec.Bind {
			cores = nil
		}
		attr := &syscall.ProcAttr{Dir: dir, Env: env,
			Files: []uintptr{ours[0], ours[1], ours[2], uintptr(l.task.open.FD), ours[3]}, // see program.ListenFD
			Sys: &syscall.SysProcAttr{
				Setsid: true,
				// The watchdog kills the task if this process is killed. This
				// kills it if both are.
				Pdeathsig: syscall.SIGKILL,
			}}
		err = command.Run(func() error { return r.start(l.children, command, attr, cores) })
	}
	if err != nil {
		r.disconnect()
		return nil, err
	}
	return r, nil
}

// closeAll closes this process's copies of descriptors that a task has inherited.
func closeAll(fds []uintptr) {
	for _, fd := range fds {
		unix.Close(int(fd))
	}
}

// share returns the cores of a worker. Servers may use all.
func (l launch) share() []int {
	if l.task.Task.Role != cluster.Worker {
		return nil
	}
	return process.ShareOfCores(l.cores, l.task.LocalRank, protocol.Workers(l.layout.Tasks))
}

// contract is what the task is told about itself and the job. dir is its own
// folder.
func (l launch) contract(dir string, cores int) cluster.Contract {
	c := cluster.Contract{
		Job: l.spec.Job, Generation: l.start.Generation, Task: l.task.Task,
		WorldSize: len(l.start.Cluster.Worker), LocalRank: l.task.LocalRank, LocalWorldSize: protocol.Workers(l.layout.Tasks),
		FirstWorldSize: l.spec.WorldSize,
		Cluster:        l.start.Cluster, ListenFD: program.ListenFD, ControlFD: program.ControlFD,
		SecretFile: l.folder.Secret(), LogLevel: l.spec.LogLevel, Dir: dir,
		Foreign: cluster.Foreign{
			Cluster: l.start.Foreign, GroupRank: l.layout.GroupRank,
			Interface: sockets.Interface(l.spec.DataAddr), Devices: l.task.Devices, Threads: cores,
		},
	}
	c.Checkpoints, _ = jobfolder.Checkpoints(l.spec.Checkpoints) // "agent start" has checked it
	if host, port, err := net.SplitHostPort(l.start.Foreign.Addr(cluster.Chief)); err == nil {
		c.Foreign.MasterAddr = host
		c.Foreign.MasterPort, _ = strconv.Atoi(port) // an agent wrote it
	}
	return c
}

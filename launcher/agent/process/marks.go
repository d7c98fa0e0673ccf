//go:build linux

package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/plx-run/plx/trainer/cluster"
)

// Environment variables by which the processes of a job are recognised. A
// process inherits them from the one that started it.
const (
	MarkAgent  = "PLX_AGENT_JOB"   // the job, in watchdog and supervisor
	MarkTask   = "PLX_JOB"         // the job, in tasks
	MarkFolder = "PLX_HOST_FOLDER" // the job's host folder, in all of them
)

// OfJob lists the processes of this user that belong to a job, with their
// descendants. A machine can be several hosts of a job: folder selects one of
// them, "" all.
func OfJob(job, folder string) ([]Process, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	return trees(all, self, func(p Process) bool {
		return p.PID != self && ownedByUser(p.PID) && markedWith(p.PID, job, folder)
	}), nil
}

// ownedByUser reports whether a process runs as this user.
func ownedByUser(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func markedWith(pid int, job, folder string) bool {
	env, err := Environment(pid)
	if err != nil {
		return false
	}
	of := slices.Contains(env, MarkTask+"="+job) || slices.Contains(env, MarkAgent+"="+job)
	return of && (folder == "" || slices.Contains(env, MarkFolder+"="+folder))
}

// TaskMark identifies the processes of a task by the environment that they
// were started with.
type TaskMark struct {
	Job, Folder string
	Task        cluster.Task
	Generation  int
}

func (m TaskMark) in(env []string) bool {
	for _, pair := range []string{
		MarkTask + "=" + m.Job,
		MarkFolder + "=" + m.Folder,
		"PLX_ROLE=" + string(m.Task.Role),
		"PLX_TASK_INDEX=" + strconv.Itoa(m.Task.Index),
		"PLX_GENERATION=" + strconv.Itoa(m.Generation),
	} {
		if !slices.Contains(env, pair) {
			return false
		}
	}
	return true
}

// OfTask lists the descendants of this process that belong to a task: those in
// the session of child, those with the mark, and the descendants of both. It misses a process that has left the session, lost its parent and
// cleared its environment; Clear finds that one too.
func OfTask(child *Child, mark TaskMark) ([]Process, error) {
	all, err := descendants()
	return trees(all, os.Getpid(), func(p Process) bool {
		if !child.Over() && p.Session == child.PID {
			return true
		}
		env, err := Environment(p.PID)
		return err == nil && mark.in(env)
	}), err
}

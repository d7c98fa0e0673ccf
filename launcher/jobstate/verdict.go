package jobstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// failure is the failure of one task or, if task is nil, of a whole host.
type failure struct {
	host       int            // index of the host that failed or that runs the task
	task       *cluster.Task  // the task that failed; nil if the whole host failed
	exit       protocol.Exit  // the task's exit; if there is none, an Exit with only the fields that are known
	culprit    string         // name of the task to blame if task is nil; empty if no task is blamed
	reason     string         // what failed and why, as text for the verdict
	hang       *protocol.Hang // description of the hang if the failure is that the job hangs; otherwise nil
	excused    bool           // the driver (which controls the job) was suspended, so the host is not at fault
	secondhand bool           // another host reported this failure, because it could not reach the failed host
}

// failureOf returns the failure that a task reports before its process exits.
func failureOf(v view, h int, s protocol.TaskMessage) failure {
	return failure{host: h, task: &s.Task, reason: fmt.Sprintf("%s on %s failed%s", s.Task, v.name(h), because(s.Message.Cause)),
		exit: protocol.Exit{Task: s.Task, Code: 1, Started: true, Native: true, Cause: s.Message.Cause, LostPeer: s.Message.Peer}}
}

// failureOfHost returns a failure of host h with the exit status CodePlx,
// which means that plx and not the program failed.
func failureOfHost(h int, reason string) failure {
	return failure{host: h, reason: reason, exit: protocol.Exit{Code: exit.CodePlx}}
}

// failures collects failures for the time Plan.Settle and then chooses the one
// to blame. It waits because the first failure is often not the cause.
type failures struct {
	all []failure
	at  map[cluster.Task]int // by task: the index of its failure in all

	prolonged bool // the time for collecting failures was prolonged once
}

// add adds failures. If a task has reported its own failure before its exit,
// the exit replaces that report, because the exit has more details.
func (fs *failures) add(more ...failure) {
	for _, f := range more {
		if f.task != nil {
			if i := fs.of(*f.task); i >= 0 {
				f.exit.LostPeer = cmp.Or(f.exit.LostPeer, fs.all[i].exit.LostPeer)
				fs.all[i] = f
				continue
			}
			if fs.at == nil {
				fs.at = map[cluster.Task]int{}
			}
			fs.at[*f.task] = len(fs.all)
		}
		fs.all = append(fs.all, f)
	}
}

// of returns the index in fs.all of the failure of task t, or -1 if there is
// none.
func (fs *failures) of(t cluster.Task) int {
	if i, known := fs.at[t]; known {
		return i
	}
	return -1
}

// verdict returns the failure to blame and the resulting verdict. It appends
// the text in more to the verdict's Reason.
func (fs *failures) verdict(v view, more string) (failure, protocol.Verdict) {
	culprit, victims := fs.blame(v)
	culprit = v.excuse(culprit)
	verdict := protocol.Verdict{Code: status(culprit.exit), Reason: culprit.reason + more, Culprit: culprit.culprit, Host: v.name(culprit.host), Hang: culprit.hang,
		Victims: victims[:min(len(victims), maxEnds)], MoreVictims: max(0, len(victims)-maxEnds)}
	if culprit.excused {
		verdict.Host = ""
		if v.driverHost() == nil {
			verdict.Suspended = v.suspended
		}
	}
	if culprit.task != nil {
		e := culprit.exit
		verdict.Culprit = culprit.task.String()
		verdict.First = &e
	}
	return culprit, verdict
}

// blame returns the failure to blame, and the names of the tasks that failed
// only because a peer did. It blames the first failure that does not name a
// lost peer. If all failures name a lost peer, it blames the peer that is
// named most often.
func (fs *failures) blame(v view) (failure, []string) {
	culprit := slices.IndexFunc(fs.all, func(f failure) bool { return f.exit.LostPeer == "" })
	var guilty failure
	if culprit >= 0 {
		guilty = fs.all[fs.mostUnreachable(culprit)]
	} else {
		guilty, culprit = fs.blamedPeer(v)
	}
	var victims []string
	for i, f := range fs.all {
		if f.exit.LostPeer != "" && i != culprit {
			victims = append(victims, fmt.Sprintf("%s on %s", f.task, v.name(f.host)))
		}
	}
	slices.Sort(victims)
	return guilty, victims
}

// mostUnreachable corrects the choice of the failure to blame. culprit and the
// result are indices into fs.all. It changes the choice only if that failure
// is secondhand: another host's report that it could not reach the failed
// host. Then it chooses the host that most other hosts could not reach. So if
// two hosts cannot reach each other, it blames the one with more broken
// connections.
func (fs *failures) mostUnreachable(culprit int) int {
	if !fs.all[culprit].secondhand {
		return culprit
	}
	votes := map[int]int{}
	for _, f := range fs.all {
		if f.secondhand {
			votes[f.host]++
		}
	}
	for i, f := range fs.all {
		if f.secondhand && votes[f.host] > votes[fs.all[culprit].host] {
			culprit = i
		}
	}
	return culprit
}

// blamedPeer returns the failure to blame if every failure names a lost peer.
// This is the failure of the peer that is named most often.
//
// A program without plx's trainer does not report which peer was lost. For
// such a program, blamedPeer blames a host without a connection, or a worker
// that has already exited with status 0. If there is neither, it blames the
// task that reported the loss. victim is the index in fs.all of the blamed
// task's own failure; it is -1 if there is none.
func (fs *failures) blamedPeer(v view) (f failure, victim int) {
	votes := map[string]int{}
	best := 0
	for i, f := range fs.all {
		peer := f.exit.LostPeer
		if votes[peer]++; votes[peer] > votes[fs.all[best].exit.LostPeer] {
			best = i
		}
	}
	witness := fs.all[best]
	peer, h, known := namedPeer(v, witness)
	if !known {
		if h := v.firstDisconnected(); h >= 0 {
			return failureOfHost(h, fmt.Sprintf("host %s: %s", v.name(h), v.hosts[h].disconnected)), -1
		}
		if e := v.leftBefore(witness); e != nil {
			return leftEarly(v, *e, witness), -1
		}
		return witness, best
	}
	if cause := v.hosts[h].disconnected; cause != "" {
		return failureOfHost(h, fmt.Sprintf("host %s: %s", v.name(h), cause)), -1
	}
	// Verdict.First (the exit of the first failed task) stays empty. The
	// blamed peer has not exited, and the reporting task is not the culprit.
	return failure{host: h, culprit: peer.String(), exit: protocol.Exit{Code: status(witness.exit)},
			reason: fmt.Sprintf("%s on %s failed, as %s reports%s", peer, v.name(h), witness.exit.Task, because(witness.exit.Cause))},
		fs.of(peer)
}

// firstDisconnected returns the index of the first host that has tasks but no
// connection. It returns -1 if there is no such host.
func (v view) firstDisconnected() int {
	return slices.IndexFunc(v.hosts, func(h *host) bool { return len(h.tasks) > 0 && h.disconnected != "" })
}

// leftBefore returns the exit of the first worker that exited with status 0
// before failure f. It returns nil if there is none.
func (v view) leftBefore(f failure) (first *protocol.Exit) {
	for t, e := range v.generation.exits {
		if t.Role != cluster.Worker || e.Code != 0 || e.StopRequested || e.Native || e.Time.After(f.exit.Time) {
			continue
		}
		if first == nil || e.Time.Before(first.Time) || e.Time.Equal(first.Time) && t.Index < first.Task.Index {
			first = &e
		}
	}
	return first
}

// leftEarly returns the failure of a worker that exited with status 0 while
// the other tasks still needed it. e is its exit. witness is the failure of
// another task, which has lost its connection to the worker.
func leftEarly(v view, e protocol.Exit, witness failure) failure {
	h := v.generation.hostOf[e.Task]
	before := ","
	if d := witness.exit.Time.Sub(e.Time).Round(time.Second); d >= time.Second {
		before = ", " + d.String()
	}
	return failure{host: h, culprit: e.Task.String(), exit: protocol.Exit{Code: status(witness.exit)},
		reason: fmt.Sprintf("%s on %s ended with status 0%s before %s on %s failed because it had lost a peer", e.Task, v.name(h), before, witness.exit.Task, v.name(witness.host))}
}

// unexplained reports whether it is unknown which task was lost, and a report
// that explains the loss may still arrive. It is unknown as long as every
// failure names a lost peer that is no task of the job.
func (fs *failures) unexplained(v view) bool {
	for _, f := range fs.all {
		if _, _, known := namedPeer(v, f); f.exit.LostPeer == "" || f.exit.Native || known {
			return false
		}
	}
	return v.firstDisconnected() < 0 && len(v.generation.exits) < len(v.generation.hostOf)
}

// namedPeer returns the peer task that failure f names as lost, and the index
// of the peer's host. known is false if f names no task of the job.
func namedPeer(v view, f failure) (peer cluster.Task, host int, known bool) {
	name, _, _ := strings.Cut(f.exit.LostPeer, " ")
	peer, err := cluster.ParseTask(name)
	host, known = v.generation.hostOf[peer]
	return peer, host, known && err == nil
}

// status returns the exit status that plx launch reports for a task's exit. As
// in a shell, it is 128 + N if signal N ended the task.
func status(e protocol.Exit) int {
	switch {
	case e.StopRequested: // the agent stopped the task although the job had not asked for it
		return exit.CodePlx
	case e.Signal != 0:
		return 128 + e.Signal
	case e.Code != 0:
		return e.Code
	}
	return 1 // a task of plx's trainer exited with 0 before its work was complete
}

// maxEnds is the largest number of tasks in Verdict.Ends and of names in
// Verdict.Victims, because the verdict is sent to every agent.
const maxEnds = 200

// parts lists the values of TaskEnd.Part in the order in which Verdict.Ends is
// sorted.
var parts = []protocol.Part{protocol.Culprit, protocol.Victim, protocol.Failed, protocol.Unknown, protocol.TornDown, protocol.Done}

// summary returns the verdict with the field Ends, which lists how each task
// ended after the last restart. If the job succeeded or was stopped, summary
// returns the verdict unchanged.
func (v view) summary(fs failures, verdict protocol.Verdict) protocol.Verdict {
	if verdict.Code == 0 || verdict.Stopped() || !v.launched {
		return verdict
	}
	var late []string // names of victims (tasks that failed only because another failed) whose failure was reported after the culprit was chosen
	for task, h := range v.generation.hostOf {
		e, ended := v.generation.exits[task]
		end := protocol.TaskEnd{Task: task.String(), Host: v.name(h), Code: e.Code, Signal: e.Signal, Cause: causes(cmp.Or(e.Cause, e.OOM), e.Shm)}
		lost := e.LostPeer
		if i := fs.of(task); i >= 0 {
			lost = cmp.Or(fs.all[i].exit.LostPeer, lost)
		}
		switch {
		case end.Task == verdict.Culprit:
			end.Part = protocol.Culprit
			if ended && verdict.Hang != nil {
				verdict.First = &e
			}
		case !ended:
			end.Part = protocol.Unknown
		case e.StopRequested && (e.Native || lost == "" || e.Code == 128+int(syscall.SIGTERM)):
			end.Part = protocol.TornDown
		case lost != "":
			end.Part = protocol.Victim
			if name := fmt.Sprintf("%s on %s", task, end.Host); !slices.Contains(verdict.Victims, name) {
				late = append(late, name)
			}
		case v.fault(h, e) != "":
			end.Part = protocol.Failed
		default:
			end.Part = protocol.Done
		}
		verdict.Ends = append(verdict.Ends, end)
	}
	slices.SortFunc(verdict.Ends, func(a, b protocol.TaskEnd) int {
		return cmp.Or(cmp.Compare(slices.Index(parts, a.Part), slices.Index(parts, b.Part)), cmp.Compare(len(a.Task), len(b.Task)), cmp.Compare(a.Task, b.Task))
	})
	if verdict.MoreVictims == 0 && len(late) > 0 {
		victims := slices.Sorted(slices.Values(append(late, verdict.Victims...)))
		verdict.Victims, verdict.MoreVictims = victims[:min(len(victims), maxEnds)], max(0, len(victims)-maxEnds)
	}
	verdict.MoreEnds = max(0, len(verdict.Ends)-maxEnds)
	verdict.Ends = verdict.Ends[:min(len(verdict.Ends), maxEnds)]
	return verdict
}

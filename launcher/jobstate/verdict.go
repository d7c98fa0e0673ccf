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

// failure is that of one task, or of one host if task is nil.
type failure struct {
	host    int            // index of the host
	task    *cluster.Task  // nil: the whole host failed
	exit    protocol.Exit  // of the task; a substitute with a Code if no Exit has arrived, or for a host
	culprit string         // name of the task that is blamed if task is nil; "": none
	reason  string         // what failed and why, for the verdict
	hang    *protocol.Hang // the job hung; nil: it did not
	excused bool           // the driver did not run, and the host is not to blame
	hearsay bool           // another host reports that it could not reach this host
}

// failureOf is a failure that a task reports before it exits.
func failureOf(v view, h int, s protocol.Said) failure {
	return failure{host: h, task: &s.Task, reason: fmt.Sprintf("%s on %s failed%s", s.Task, v.name(h), because(s.Message.Cause)),
		exit: protocol.Exit{Task: s.Task, Code: 1, Started: true, Native: true, Cause: s.Message.Cause, LostPeer: s.Message.Peer}}
}

// failureOfHost is a failure for which plx's own exit status stands.
func failureOfHost(h int, reason string) failure {
	return failure{host: h, reason: reason, exit: protocol.Exit{Code: exit.CodePlx}}
}

// failures collects failures for Plan.Settle, as the first one seen is often not
// the cause. Then it chooses the one to blame.
type failures struct {
	all []failure
	at  map[cluster.Task]int // index into all of each task's failure

	prolonged bool // the time in which failures are collected was prolonged
}

// add collects failures. An exit says more than the task's own report did, and
// takes its place.
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

// of is the index of the failure of a task; -1 is none.
func (fs *failures) of(t cluster.Task) int {
	if i, known := fs.at[t]; known {
		return i
	}
	return -1
}

// verdict returns the culprit and the verdict on it. more is added to the reason.
func (fs *failures) verdict(v view, more string) (failure, protocol.Verdict) {
	culprit, victims := fs.blame(v)
	culprit = v.excuse(culprit)
	verdict := protocol.Verdict{Code: status(culprit.exit), Reason: culprit.reason + more, Culprit: culprit.culprit, Host: v.name(culprit.host), Hang: culprit.hang,
		Victims: victims[:min(len(victims), maxEnds)], MoreVictims: max(0, len(victims)-maxEnds)}
	if culprit.excused {
		verdict.Host = ""
		if v.seat() == nil {
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

// blame returns the culprit and the tasks that failed because a peer did. The
// culprit is the first failure that does not blame a peer; if all blame peers it
// is the peer that they blame.
func (fs *failures) blame(v view) (failure, []string) {
	culprit := slices.IndexFunc(fs.all, func(f failure) bool { return f.exit.LostPeer == "" })
	var guilty failure
	if culprit >= 0 {
		guilty = fs.all[fs.outvoted(culprit)]
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

// outvoted replaces a host that another host could not reach by the one that most
// hosts could not reach: of two hosts that are cut off from each other, the one
// that is cut off from others too. It leaves any other failure as it is.
func (fs *failures) outvoted(culprit int) int {
	if !fs.all[culprit].hearsay {
		return culprit
	}
	votes := map[int]int{}
	for _, f := range fs.all {
		if f.hearsay {
			votes[f.host]++
		}
	}
	for i, f := range fs.all {
		if f.hearsay && votes[f.host] > votes[fs.all[culprit].host] {
			culprit = i
		}
	}
	return culprit
}

// blamedPeer turns failures that all blame peers into one: that of the peer which
// most of them name, or the first of equals. If that peer is no task of the job, as a
// program without plx's trainer does not know which it was, it is a task of a host
// that is out of reach, or one that ended well before; if there is none the failure is the
// witness's own. victim is the index of the culprit's own failure; -1 is none.
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
	peer, h, known := blamed(v, witness)
	if !known {
		if h := v.outOfReach(); h >= 0 {
			return failureOfHost(h, fmt.Sprintf("host %s: %s", v.name(h), v.hosts[h].silent)), -1
		}
		if e := v.leftBefore(witness); e != nil {
			return leftEarly(v, *e, witness), -1
		}
		return witness, best
	}
	if cause := v.hosts[h].silent; cause != "" {
		return failureOfHost(h, fmt.Sprintf("host %s: %s", v.name(h), cause)), -1
	}
	// The verdict names no first exit: the peer has none, and the witness's last
	// words are not those of the culprit.
	return failure{host: h, culprit: peer.String(), exit: protocol.Exit{Code: status(witness.exit)},
			reason: fmt.Sprintf("%s on %s failed, as %s reports%s", peer, v.name(h), witness.exit.Task, because(witness.exit.Cause))},
		fs.of(peer)
}

// outOfReach is the first host with tasks to which there is no connection; -1 is none.
func (v view) outOfReach() int {
	return slices.IndexFunc(v.hosts, func(h *host) bool { return len(h.tasks) > 0 && h.silent != "" })
}

// leftBefore is the end of the worker that ended first, if it ended well and before a
// failure; nil: none did.
func (v view) leftBefore(f failure) (first *protocol.Exit) {
	for t, e := range v.generation.exits {
		if t.Role != cluster.Worker || e.Code != 0 || e.Told || e.Native || e.Time.After(f.exit.Time) {
			continue
		}
		if first == nil || e.Time.Before(first.Time) || e.Time.Equal(first.Time) && t.Index < first.Task.Index {
			first = &e
		}
	}
	return first
}

// leftEarly is the failure of a worker that ended well, but before the others.
func leftEarly(v view, e protocol.Exit, witness failure) failure {
	h := v.generation.hostOf[e.Task]
	before := ","
	if d := witness.exit.Time.Sub(e.Time).Round(time.Second); d >= time.Second {
		before = ", " + d.String()
	}
	return failure{host: h, culprit: e.Task.String(), exit: protocol.Exit{Code: status(witness.exit)},
		reason: fmt.Sprintf("%s on %s ended with status 0%s before %s on %s failed because it had lost a peer", e.Task, v.name(h), before, witness.exit.Task, v.name(witness.host))}
}

// unexplained reports whether all failures blame peers, none knows which, and the peer's end
// may still be heard: a task has not ended, or its host has just been cut off.
func (fs *failures) unexplained(v view) bool {
	for _, f := range fs.all {
		if _, _, known := blamed(v, f); f.exit.LostPeer == "" || f.exit.Native || known {
			return false
		}
	}
	return v.outOfReach() < 0 && len(v.generation.exits) < len(v.generation.hostOf)
}

// blamed is the peer that a failure blames, with its host. known is false if that
// is no task of the job.
func blamed(v view, f failure) (peer cluster.Task, host int, known bool) {
	name, _, _ := strings.Cut(f.exit.LostPeer, " ")
	peer, err := cluster.ParseTask(name)
	host, known = v.generation.hostOf[peer]
	return peer, host, known && err == nil
}

// status is an exit as a shell shows it: 128 + signal if a signal ended the task.
func status(e protocol.Exit) int {
	switch {
	case e.Told: // by its agent, and the job had not asked for that
		return exit.CodePlx
	case e.Signal != 0:
		return 128 + e.Signal
	case e.Code != 0:
		return e.Code
	}
	return 1 // native, exited with 0, not finished
}

// maxEnds bounds the tasks that a verdict lists, and the victims: it goes to every agent.
const maxEnds = 200

// parts are the parts that a task may have in a failure, as a summary lists them.
var parts = []protocol.Part{protocol.Culprit, protocol.Victim, protocol.Failed, protocol.Unknown, protocol.TornDown, protocol.Done}

// summary adds to the verdict on a job that failed or hung how each task of its last
// generation ended.
func (v view) summary(fs failures, verdict protocol.Verdict) protocol.Verdict {
	if verdict.Code == 0 || verdict.Stopped() || !v.launched {
		return verdict
	}
	var late []string // victims that ended after the job was told to
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
		case e.Told && (e.Native || lost == "" || e.Code == 128+int(syscall.SIGTERM)):
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

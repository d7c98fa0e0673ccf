package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// Bounds below which a finding is made. Those of warnings are what programs for training
// are known to need.
const (
	leastHomeKiB  = 64 << 10 // plx itself, and a small program
	goodHomeKiB   = 2 << 20  // also a task's log up to its limit, and checkpoints
	goodTmpKiB    = 256 << 10
	leastInodes   = 100
	goodInodes    = 10_000
	leastFiles    = 128
	goodFiles     = 1024
	goodProcesses = 1024
	goodSkew      = 5 // seconds
)

// notes collects the findings of one host.
type notes struct {
	host string
	all  []Finding
}

func (n *notes) add(level Level, check Check, remedy, format string, args ...any) {
	n.all = append(n.all, Finding{Level: level, Check: check, Hosts: []string{n.host}, Text: bounded(fmt.Sprintf(format, args...)), Remedy: bounded(remedy)})
}

// bounded cuts a text off that a host has made too long.
func bounded(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// failed adds an error with its own hint, or with remedy.
func (n *notes) failed(check Check, err error, remedy string) {
	// The same is said of several hosts once: no remedy names one.
	hint := strings.ReplaceAll(exit.Hint(err), "ssh "+n.host+" true", "ssh HOST true")
	n.add(Error, check, cmp.Or(hint, remedy), "%s", strings.Join(strings.Fields(err.Error()), " "))
}

// has reports whether a check has found an error.
func (n *notes) has(check Check) bool {
	return slices.ContainsFunc(n.all, func(f Finding) bool { return f.Check == check && f.Level == Error })
}

// unreached adds why no connection was made.
func (n *notes) unreached(err error) {
	switch by, cure := transport.RefusedBy(err); by {
	case transport.HostKey:
		n.failed(HostKey, err, cure)
	case transport.Login:
		n.failed(Login, err, cure)
	default:
		n.failed(Connection, err, "check name, port, firewall and that sshd runs there: ssh HOST true")
	}
}

// unprobed adds why it is not known which GPUs the host has.
func (n *notes) unprobed(err error) { n.failed(GPUs, err, "run nvidia-smi there by hand") }

// unplaced adds why plx does not run on a host.
func (n *notes) unplaced(err error) {
	var refused *bootstrap.Refused
	var failure *protocol.Failure
	var silent *bootstrap.NoAnswer
	const elsewhere = "repair it, or make ~/.plx a link to a folder on another disk; plx prune --hosts FILE frees space"
	switch {
	case errors.As(err, &refused) && refused.NoHome:
		n.failed(Home, err, "make the folder for that user, or name another user: USER@HOST")
	case errors.As(err, &refused) && refused.Limited:
		n.failed(Shell, err, bootstrap.LimitHint)
	case errors.As(err, &refused), errors.As(err, &failure):
		n.failed(Home, err, elsewhere)
	case errors.As(err, new(*hosts.PlatformError)):
		n.failed(Platform, err, "take another host")
	case errors.Is(err, hosts.ErrStuck), errors.As(err, &silent), exit.Hint(err) != "":
		n.failed(Shell, err, "ssh HOST echo hello must print hello, nothing else, and end at once")
	default:
		n.failed(Agent, fmt.Errorf("plx does not run there: %w", err), "run it by hand: ~/.plx/blobs/* version")
	}
}

// judge adds what is wrong with one host.
func (n *notes) judge(f Facts) {
	n.judgeHome(f.Home)
	n.judgeTmp(f.Tmp)
	n.judgeShm(f.Shm)
	n.judgeLimits(f)
	if math.Abs(f.Skew) > goodSkew+f.SkewError && f.SkewError >= 0 {
		way := "ahead of"
		if f.Skew < 0 {
			way = "behind"
		}
		n.add(Warning, Clock, "synchronise it, for example with chrony: times in logs and of files are wrong",
			"its clock is %s %s this machine's", span(math.Abs(f.Skew)), way)
	}
}

// judgeHome looks at the room alone: plx runs there.
func (n *notes) judgeHome(f protocol.Folder) {
	n.judgeRoom(Home, "~/.plx", f, room{leastHomeKiB, goodHomeKiB, leastInodes, goodInodes},
		"free space: plx prune --hosts FILE, or make ~/.plx a link to a folder on another disk")
}

// judgeTmp makes warnings only: plx writes nothing there, many programs do.
func (n *notes) judgeTmp(f protocol.Folder) {
	const remedy = "repair /tmp, or give programs another folder: --env TMPDIR=/PATH"
	switch {
	case f.Path == "":
	case f.Missing:
		n.add(Warning, Tmp, remedy, "%s is not there, and Python needs it", f.Path)
	case f.Unwritable != "":
		n.add(Warning, Tmp, remedy, "%s cannot be written, and Python needs it: %s", f.Path, f.Unwritable)
	default:
		if f.NoExec {
			n.add(Warning, Tmp, remedy, "programs in %s cannot be executed (noexec?), and torch compiles kernels there", f.Path)
		}
		n.judgeRoom(Tmp, f.Path, f, room{0, goodTmpKiB, 0, goodInodes}, "free space in "+f.Path)
	}
}

// enlargeShm gives processes more room to share memory.
const enlargeShm = "as root mount -o remount,size=8G /dev/shm (size= in /etc/fstab keeps it), for a container --shm-size=8g or --ipc=host"

// judgeShm makes warnings only: plx needs no shared memory, many programs do.
func (n *notes) judgeShm(f protocol.Folder) {
	remedy := enlargeShm
	fault, text := protocol.OfShm(f)
	switch fault {
	case protocol.ShmGood:
		return
	case protocol.ShmMissing:
		remedy = "as root mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
	case protocol.ShmUnwritable:
		remedy = "as root mount -o remount,rw,mode=1777 /dev/shm"
	case protocol.ShmFull:
		remedy = "remove files there that no program has open any more (lsof +D /dev/shm); or enlarge it: " + enlargeShm
	}
	n.add(Warning, Shm, remedy, "%s, and data loaders of PyTorch and NCCL share memory there", text)
}

// room is what a folder's file system must have left, else it is an error, and what it
// should have left.
type room struct{ leastKiB, goodKiB, leastInodes, goodInodes int64 }

// judgeRoom adds what is wrong with the room on a file system.
func (n *notes) judgeRoom(check Check, name string, f protocol.Folder, r room, remedy string) {
	if free := f.FreeKiB; free != protocol.NotKnown && free < r.goodKiB {
		// Rounded, so that the same is said of hosts that are about equally full.
		n.add(worse(free < r.leastKiB), check, remedy, "the disk of %s has %d MiB left (%s)", name, free>>10, f.Mount)
	}
	if free := f.FreeInodes; free != protocol.NotKnown && free < r.goodInodes {
		n.add(worse(free < r.leastInodes), check, "remove files: each takes an inode", "the disk of %s has room for %d more files (inodes)", name, free)
	}
}

// worse is the level of a finding that is an error or not.
func worse(is bool) Level {
	if is {
		return Error
	}
	return Warning
}

func (n *notes) judgeLimits(f Facts) {
	const remedy = "raise it in /etc/security/limits.conf, or for a login without PAM in the unit of sshd"
	switch l := f.OpenFiles; {
	case l.Hard == protocol.NotKnown:
	case l.Hard < goodFiles:
		n.add(worse(l.Hard < leastFiles), Limits, remedy, "a process may open %d files at most (ulimit -Hn)", l.Hard)
	case l.Soft < goodFiles:
		n.add(Warning, Limits, remedy+"; or --setup 'ulimit -n "+fmt.Sprint(min(l.Hard, 65536))+"'",
			"a process may open %d files (ulimit -n), which loaders of data may use up", l.Soft)
	}
	// The limit of processes does not hold for root.
	if l := f.Processes; l.Soft != protocol.NotKnown && f.UID != 0 && l.Soft < goodProcesses {
		n.add(Warning, Limits, remedy, "user %s may have %d processes and threads (ulimit -u)", f.User, l.Soft)
	}
}

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

// Values below which judge adds a finding (a problem of the host): an error
// below a value whose name begins with least, a warning below one whose name
// begins with good. The good values are what common training programs need.
const (
	leastHomeKiB  = 64 << 10 // room for plx itself and a small program
	goodHomeKiB   = 2 << 20  // room also for checkpoints, and for task logs of the largest allowed size
	goodTmpKiB    = 256 << 10
	leastInodes   = 100
	goodInodes    = 10_000
	leastFiles    = 128
	goodFiles     = 1024
	goodProcesses = 1024
	goodSkew      = 5 // largest clock error without a warning, in seconds
)

// notes collects the findings (problems) of one host. host is the host's name.
type notes struct {
	host string
	all  []Finding
}

func (n *notes) add(level Level, check Check, remedy, format string, args ...any) {
	n.all = append(n.all, Finding{Level: level, Check: check, Hosts: []string{n.host}, Text: truncated(fmt.Sprintf(format, args...)), Remedy: truncated(remedy)})
}

// truncated shortens text to 1000 bytes, because a host may send texts of any
// length.
func truncated(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// addError adds err as an error of the host. The remedy that it shows is the
// hint of err, or remedy if err has no hint.
func (n *notes) addError(check Check, err error, remedy string) {
	// Replace the host's name in the hint, so that equal findings of several
	// hosts can be merged.
	hint := strings.ReplaceAll(exit.Hint(err), "ssh "+n.host+" true", "ssh HOST true")
	n.add(Error, check, cmp.Or(hint, remedy), "%s", strings.Join(strings.Fields(err.Error()), " "))
}

// has reports whether an error was added for check.
func (n *notes) has(check Check) bool {
	return slices.ContainsFunc(n.all, func(f Finding) bool { return f.Check == check && f.Level == Error })
}

// unreached adds the error of a failed connection to the host. The cause, such
// as a wrong host key, determines the check to which the error belongs.
func (n *notes) unreached(err error) {
	switch by, cure := transport.RefusedBy(err); by {
	case transport.HostKey:
		n.addError(HostKey, err, cure)
	case transport.Login:
		n.addError(Login, err, cure)
	default:
		n.addError(Connection, err, "check name, port, firewall and that sshd runs there: ssh HOST true")
	}
}

// unprobed adds the error that the GPUs of the host could not be listed.
func (n *notes) unprobed(err error) { n.addError(GPUs, err, "run nvidia-smi there by hand") }

// unplaced adds the error that the plx agent could not be installed or started
// on the host.
func (n *notes) unplaced(err error) {
	var refused *bootstrap.RefusedError
	var failure *protocol.Failure
	var silent *bootstrap.NoReplyError
	const elsewhere = "repair it, or make ~/.plx a link to a folder on another disk; plx prune --hosts FILE frees space"
	switch {
	case errors.As(err, &refused) && refused.NoHome:
		n.addError(Home, err, "make the folder for that user, or name another user: USER@HOST")
	case errors.As(err, &refused) && refused.Limited:
		n.addError(Shell, err, bootstrap.LimitHint)
	case errors.As(err, &refused), errors.As(err, &failure):
		n.addError(Home, err, elsewhere)
	case errors.As(err, new(*hosts.PlatformError)):
		n.addError(Platform, err, "take another host")
	case errors.Is(err, hosts.ErrStuck), errors.As(err, &silent), exit.Hint(err) != "":
		n.addError(Shell, err, "ssh HOST echo hello must print hello, nothing else, and end at once")
	default:
		n.addError(Agent, fmt.Errorf("plx does not run there: %w", err), "run it by hand: ~/.plx/blobs/* version")
	}
}

// judge adds findings about directories, limits and the clock of the host.
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
			"its clock is %s %s this machine's", formatSeconds(math.Abs(f.Skew)), way)
	}
}

// judgeHome checks the free space of the home directory. It need not check
// whether plx can write there, because the plx agent was installed in it.
func (n *notes) judgeHome(f protocol.Folder) {
	n.judgeRoom(Home, "~/.plx", f, room{leastHomeKiB, goodHomeKiB, leastInodes, goodInodes},
		"free space: plx prune --hosts FILE, or make ~/.plx a link to a folder on another disk")
}

// judgeTmp adds warnings about /tmp. It adds no errors, because plx itself
// does not use /tmp. Many programs do.
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

// enlargeShm is the remedy for a /dev/shm that is too small.
const enlargeShm = "as root mount -o remount,size=8G /dev/shm (size= in /etc/fstab keeps it), for a container --shm-size=8g or --ipc=host"

// judgeShm adds warnings about /dev/shm. It adds no errors, because plx itself
// uses no shared memory. Many programs do.
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

// room holds limits for the free space of a file system. Free space below
// leastKiB or leastInodes is an error, below goodKiB or goodInodes a warning.
type room struct{ leastKiB, goodKiB, leastInodes, goodInodes int64 }

// judgeRoom adds findings about the free space and free inodes of the file
// system of folder f.
func (n *notes) judgeRoom(check Check, name string, f protocol.Folder, r room, remedy string) {
	if free := f.FreeKiB; free != protocol.NotKnown && free < r.goodKiB {
		// Print whole MiB, so that the findings of hosts whose disks are about
		// equally full can be merged.
		n.add(levelOf(free < r.leastKiB), check, remedy, "the disk of %s has %d MiB left (%s)", name, free>>10, f.Mount)
	}
	if free := f.FreeInodes; free != protocol.NotKnown && free < r.goodInodes {
		n.add(levelOf(free < r.leastInodes), check, "remove files: each takes an inode", "the disk of %s has room for %d more files (inodes)", name, free)
	}
}

// levelOf returns Error if isError is true, and Warning if not.
func levelOf(isError bool) Level {
	if isError {
		return Error
	}
	return Warning
}

func (n *notes) judgeLimits(f Facts) {
	const remedy = "raise it in /etc/security/limits.conf, or for a login without PAM in the unit of sshd"
	switch l := f.OpenFiles; {
	case l.Hard == protocol.NotKnown:
	case l.Hard < goodFiles:
		n.add(levelOf(l.Hard < leastFiles), Limits, remedy, "a process may open %d files at most (ulimit -Hn)", l.Hard)
	case l.Soft < goodFiles:
		n.add(Warning, Limits, remedy+"; or --setup 'ulimit -n "+fmt.Sprint(min(l.Hard, 65536))+"'",
			"a process may open %d files (ulimit -n), which loaders of data may use up", l.Soft)
	}
	// The kernel does not apply the process limit (RLIMIT_NPROC) to root.
	if l := f.Processes; l.Soft != protocol.NotKnown && f.UID != 0 && l.Soft < goodProcesses {
		n.add(Warning, Limits, remedy, "user %s may have %d processes and threads (ulimit -u)", f.User, l.Soft)
	}
}

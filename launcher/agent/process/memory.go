//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/plural"
)

// Memory is a snapshot of the kernel's counters of OOM kills: processes that
// the kernel killed because memory ran out.
type Memory struct {
	host  int64         // OOM kills on the whole host since it booted; 0 if the kernel does not count them
	group group         // control group of this process and of the processes that it starts
	kills int64         // number of OOM kills in the control group
	at    time.Duration // time of the snapshot, measured from the host's boot
}

// ReadMemory takes a snapshot of the OOM kill counters.
func ReadMemory() Memory {
	own, _ := os.ReadFile("/proc/self/cgroup") // on an error, own is empty and findGroup finds no group
	m := Memory{host: hostKills(), group: findGroup(string(own)), at: uptime()}
	m.kills = m.group.kills()
	return m
}

// Killed returns how many processes the kernel has OOM-killed on this host
// since the snapshot m. pid is a process that SIGKILL has ended. proof is a
// sentence that proves that the OOM killer sent that SIGKILL; it is "" without
// proof.
func (m Memory) Killed(pid int) (kills int64, proof string) {
	kills = hostKills() - m.host
	if line := oomRecord(pid, m.at); line != "" {
		return kills, line
	}
	if n := m.group.kills() - m.kills; n > 0 {
		return kills, fmt.Sprintf("the kernel killed %s of its control group %s%s", plural.Count(int(n), "process"), m.group.name, m.group.limit())
	}
	return kills, ""
}

// group is a control group with a memory limit, of cgroup version 1 or 2.
type group struct {
	name       string // path of the group, as /proc/self/cgroup shows it
	eventsFile string // path of the file that has a line "oom_kill N"; "" if no group was found
	limitFile  string // path of the file that contains the group's memory limit in bytes
}

// groupRoot is the folder in which Linux systems mount the cgroup file
// systems.
const groupRoot = "/sys/fs/cgroup"

// findGroup finds the memory control group of this process. own is the text of
// /proc/self/cgroup, which contains the group's path. In a container, the
// group's files can be at the root of the cgroup file system instead, so
// findGroup tries both.
func findGroup(own string) group {
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		dir, events, most := groupRoot, "memory.events", "memory.max"
		switch {
		case fields[1] == "memory":
			dir, events, most = groupRoot+"/memory", "memory.oom_control", "memory.limit_in_bytes"
		case fields[0] != "0":
			continue
		}
		for _, below := range []string{fields[2], "/"} {
			g := group{name: fields[2], eventsFile: path.Join(dir, below, events), limitFile: path.Join(dir, below, most)}
			if _, err := os.Stat(g.eventsFile); err == nil {
				return g
			}
		}
	}
	return group{}
}

// kills returns the number of OOM kills in the control group; 0 if the kernel
// does not count them.
func (g group) kills() int64 {
	text, err := os.ReadFile(g.eventsFile)
	if err != nil {
		return 0
	}
	return oomKills(string(text))
}

// limit returns the end of a sentence about an OOM kill: it gives the group's
// memory limit, or is "" if the group has no limit.
func (g group) limit() string {
	text, err := os.ReadFile(g.limitFile)
	if err != nil {
		return ""
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= 1<<60 { // cgroup version 1 writes "no limit" as a huge number
		return ""
	}
	return fmt.Sprintf(", whose memory limit is %d MiB", n>>20)
}

// hostPIDNamespace is the inode number of the host's first pid namespace. It is a
// constant of the Linux kernel.
const hostPIDNamespace = 0xEFFFFFFC

// clockMargin is the assumed maximum by which time stamps in the kernel's log
// lag behind CLOCK_MONOTONIC. TODO: this margin is a guess, it was measured on
// no host.
const clockMargin = 10 * time.Second

// maxLogRecords is the maximum number of records of the kernel's log that
// oomRecord reads.
const maxLogRecords = 100_000

// oomRecord returns a sentence from the kernel's log about the OOM kill of the
// process pid, if that happened later than after. It returns "" if the log has
// no such record or this process may not read the log. The log contains pids
// of the host's first pid namespace, so oomRecord also returns "" in another
// namespace.
func oomRecord(pid int, after time.Duration) string {
	var ns unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &ns) != nil || ns.Ino != hostPIDNamespace {
		return ""
	}
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd) // the log was only read
	found, record := "", make([]byte, 8<<10)
	for range maxLogRecords {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE): // the kernel has overwritten the records at this position; continue with the oldest one that is left
		case err != nil || n <= 0:
			return found
		default:
			if at, line := parseOOMRecord(string(record[:n]), pid); line != "" && at+clockMargin >= after {
				found = line
			}
		}
	}
	return found
}

// oomMessage matches the message that the kernel logs about an OOM kill.
var oomMessage = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?:Memory cgroup out|Out) of memory): Killed process (\d+) \(([^\n]{0,15})\).* anon-rss:(\d+)kB`)
})

// parseOOMRecord parses one record of /dev/kmsg. If the record reports the OOM
// kill of the process pid, parseOOMRecord returns its time since boot and a
// sentence about it. For other records, line is "".
func parseOOMRecord(record string, pid int) (at time.Duration, line string) {
	head, text, _ := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	m := oomMessage().FindStringSubmatch(text)
	if m == nil || m[2] != strconv.Itoa(pid) || len(fields) < 3 {
		return 0, ""
	}
	micros, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return 0, ""
	}
	// The pattern matches only digits, so the only possible error is overflow.
	// kib is the largest int64 in that case.
	kib, _ := strconv.ParseInt(m[4], 10, 64)
	line = fmt.Sprintf("the kernel killed %s (pid %d), which had %d MiB", m[3], pid, kib>>10)
	if strings.HasPrefix(m[1], "Memory cgroup") {
		line += ", because its control group reached its memory limit"
	}
	return time.Duration(micros) * time.Microsecond, line
}

// uptime returns the reading of CLOCK_MONOTONIC, the time since boot that the
// kernel's log also uses.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// hostKills returns the number of OOM kills on this host since it booted,
// including those in all containers. It returns 0 if the kernel does not count
// them.
func hostKills() int64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0 // cannot happen: plx could not run without /proc
	}
	return oomKills(string(text))
}

func oomKills(vmstat string) int64 {
	for line := range strings.Lines(vmstat) {
		if n, found := strings.CutPrefix(line, "oom_kill "); found {
			kills, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			if err != nil {
				return 0 // Linux always writes a number, so this cannot happen
			}
			return kills
		}
	}
	return 0
}

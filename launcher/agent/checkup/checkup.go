//go:build linux

// Package checkup is what an agent does on a host for "plx doctor": it reports how
// the host ends processes and what earlier jobs have left, serves the agents of the other
// hosts, and dials some of them.
//
// It changes nothing on the host. The launcher judges what it reports: package doctor.
package checkup

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
)

// oldJob is the age at which an ended job is counted as old: plx prune removes it.
const oldJob = 30 * 24 * time.Hour

// Agent is an agent that plx doctor asks. The zero value is ready.
type Agent struct{ id sockets.Identity }

// Report tells what the agent finds. From then on it serves the other agents, until ctx ends.
func (a *Agent) Report(ctx context.Context, want protocol.Checkup) (protocol.HostReport, error) {
	begun := time.Now()
	a.id = sockets.Identity{Secret: want.Secret, HostIndex: want.Index}
	report := examine(ctx, want)
	report.Now, report.Took = begun.UnixNano(), time.Since(begun)
	if want.Addr == "" {
		return report, nil
	}
	ln, err := sockets.Place{Addr: want.Addr, Low: want.PortLow, High: want.PortHigh}.ListenData()
	if err != nil {
		report.Refused = err.Error()
		return report, nil
	}
	report.Addr = ln.Addr().String()
	context.AfterFunc(ctx, func() { ln.Close() }) // nothing was written
	go serveExchanges(ctx, ln, a.id)
	return report, nil
}

// Meet dials other agents, and tells which it could not reach.
func (a *Agent) Meet(ctx context.Context, peers []protocol.Peer) ([]protocol.CheckupFailure, error) {
	var mu sync.Mutex
	var failures []protocol.CheckupFailure
	var dialling sync.WaitGroup
	for _, peer := range peers {
		dialling.Go(func() {
			connected, err := a.id.Exchange(ctx, peer)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, protocol.CheckupFailure{Unreached: protocol.Unreached{Peer: peer, Cause: err.Error()}, Connected: connected})
			}
		})
	}
	dialling.Wait()
	return failures, nil
}

// serveExchanges answers the other agents until ln is closed.
func serveExchanges(ctx context.Context, ln net.Listener, id sockets.Identity) {
	gate := id.Gate()
	ln = gate.Listener(ln)
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, sockets.Greeting)
			defer cancel()
			peer, _, err := gate.Accept(ctx, conn)
			if err != nil {
				conn.Close() // it has no right to an answer
				return
			}
			_ = sockets.Echo(peer) // the other end reports what fails
		}()
	}
}

// examine returns what the agent finds without the network.
func examine(ctx context.Context, want protocol.Checkup) (r protocol.HostReport) {
	var err error
	r.Facts = facts(ctx)
	if r.Links, err = sockets.Links(); err != nil {
		r.Refused = err.Error()
	}
	r.Interface = sockets.Interface(want.Addr)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		r.NoSubreaper = err.Error()
	}
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		r.NoPidfd = err.Error()
	} else {
		unix.Close(fd)
	}
	r.Scope = watchdog.EnterScope(ctx, "doctor")
	r.LogindKills = logindKills("/")
	r.PidsMax = pidsMax("/")
	if r.Strays, r.Old, err = leftovers(time.Now()); err != nil {
		r.Broken = err.Error()
	}
	return r
}

// leftovers returns the jobs that are over and of which processes are left, and how many
// jobs ended long ago.
func leftovers(now time.Time) (strays []protocol.Stray, old int, err error) {
	states, err := jobfolder.States()
	if err != nil {
		return nil, 0, err
	}
	marked, err := process.Marked()
	if err != nil {
		return nil, 0, err
	}
	for f, s := range states {
		if jobfolder.LifeOf(s) != jobfolder.Dead || jobfolder.HostOf(s.Machine) != jobfolder.HostOf(jobfolder.Machine()) {
			continue
		}
		if pids := marked[process.Mark{Job: f.Job(), Folder: f.Name()}]; len(pids) > 0 {
			strays = append(strays, protocol.Stray{Job: f.Job(), PIDs: pids})
		}
		if info, err := os.Stat(f.State()); err == nil && now.Sub(info.ModTime()) > oldJob {
			old++
		}
	}
	slices.SortFunc(strays, func(a, b protocol.Stray) int { return strings.Compare(a.Job, b.Job) })
	return strays, old, nil
}

// logindKills reports whether logind.conf says KillUserProcesses=yes. root is a folder
// that stands for /.
func logindKills(root string) (kills bool) {
	files := []string{filepath.Join(root, "etc/systemd/logind.conf")}
	for _, folder := range []string{"usr/lib", "run", "etc"} { // drop-ins come after the file
		more, _ := filepath.Glob(filepath.Join(root, folder, "systemd/logind.conf.d/*.conf")) // the pattern is valid
		files = append(files, more...)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // one that is not there says nothing
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			if strings.TrimSpace(key) == "KillUserProcesses" {
				kills = slices.Contains([]string{"yes", "true", "on", "1"}, strings.ToLower(strings.TrimSpace(value)))
			}
		}
	}
	return kills
}

// pidsMax returns how many processes the control group of this process may have, and those
// above it; 0 if there is no limit. root is a folder that stands for /.
func pidsMax(root string) (least int64) {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // none: no limit
	for line := range strings.Lines(string(text)) {
		path, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			limit, _ := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path, "pids.max"))                                    // none: no limit here
			if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil && (least == 0 || n < least) { // "max" is no number
				least = n
			}
			if path == "/" {
				return least
			}
		}
	}
	return least
}

package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/test/patience"
)

// giver serves a plx binary on loopback ports, as agents on hosts do.
type giver struct {
	t       *testing.T
	content []byte
	given   atomic.Int64 // number of connections that received the whole content
}

func (g *giver) seed(context.Context) (Seed, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Seed{}, err
	}
	g.t.Cleanup(func() { ln.Close() })
	const token = "the-token"
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close() // closing the connection marks the end of the content
				told := make([]byte, len(token))
				if _, err := io.ReadFull(conn, told); err == nil && string(told) == token {
					g.given.Add(1)
					conn.Write(g.content) // error ignored: the receiver checks the content
				}
			}()
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return Seed{Host: "127.0.0.1", Port: port, Token: token}, err
}

func newHosts(t *testing.T, n int) (all []*host) {
	for range n {
		all = append(all, newHost(t))
	}
	return all
}

// placed is the result of sending plx to many hosts.
type placed struct {
	errs   []error
	direct int              // number of hosts to which this machine sent plx
	last   map[string]int64 // last reported progress, in bytes; the key is the host
}

// place sends plx to many hosts at once.
func place(t *testing.T, seeds *Seeds, b envsync.Blob, hosts []*host, seed func(context.Context) (Seed, error)) placed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	out := placed{errs: make([]error, len(hosts)), last: map[string]int64{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i, h := range hosts {
		wait.Go(func() {
			c := giving(b)
			c.Host, c.Args, c.Seeds = fmt.Sprint("h", i), "agent start", seeds
			c.Progress = func(host, _ string, sent, _ int64) {
				mu.Lock()
				defer mu.Unlock()
				out.last[host] = sent
			}
			s := New(c)
			sh := h.start(t, s.Script())
			err := s.Run(ctx, sh)
			if err == nil {
				s.Done(seed)
				if said := h.finish(t, sh); said != ran {
					err = fmt.Errorf("plx says %q", said)
				}
			}
			sh.close()
			mu.Lock()
			defer mu.Unlock()
			if out.errs[i] = err; sh.sent.Load() > 1000 {
				out.direct++
			}
		})
	}
	wait.Wait()
	settled(t, seeds)
	for _, h := range hosts {
		if left := h.leftovers(t); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	}
	return out
}

// settled checks that no host has a turn in s or waits for one.
func settled(t *testing.T, s *Seeds) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for sum, p := range s.plx {
		if p.coming != 0 {
			t.Errorf("%d hosts are still getting %s", p.coming, sum)
		}
		for _, from := range p.sources {
			if from.taking != 0 {
				t.Errorf("%d hosts are still taking %s", from.taking, sum)
			}
		}
	}
	for name, h := range s.homes {
		if len(h.getting) != 0 {
			t.Errorf("a host with the home %s has not left", name)
		}
	}
}

// This machine sends plx to the first hosts; the other hosts download it from
// them.
func TestHostsServeOtherHosts(t *testing.T) {
	for _, n := range []int{9, 24} {
		if n > 9 && testing.Short() {
			t.Skip("takes seconds")
		}
		b, content := plxBlob(t, 300_000, true)
		g := &giver{t: t, content: content}
		hosts, seeds := newHosts(t, n), NewSeeds(func(why string) { t.Error(why) })
		got := place(t, seeds, b, hosts, g.seed)
		if err := errors.Join(got.errs...); err != nil || got.direct != directSends || g.given.Load() != int64(n-directSends) {
			t.Errorf("sent to %d hosts, given to %d, %v", got.direct, g.given.Load(), err)
		}
		for i, h := range hosts {
			if has, err := os.ReadFile(h.path(b)); err != nil || !bytes.Equal(has, content) || got.last[fmt.Sprint("h", i)] != b.Size {
				t.Errorf("h%d has another content, or its progress ends at %d: %v", i, got.last[fmt.Sprint("h", i)], err)
			}
		}
		if n > 9 {
			return
		}
		// Hosts that already have plx serve it to hosts that join.
		g.given.Store(0)
		seeds = NewSeeds(func(why string) { t.Error(why) })
		if err := errors.Join(place(t, seeds, b, hosts, g.seed).errs...); err != nil {
			t.Error(err)
		}
		got = place(t, seeds, b, newHosts(t, 5), g.seed)
		if err := errors.Join(got.errs...); err != nil || got.direct != directSends || g.given.Load() != 5-directSends {
			t.Errorf("to those that join: sent to %d hosts, given to %d, %v", got.direct, g.given.Load(), err)
		}
	}
}

// If a serving host sends nothing, too little or wrong content, or the tools
// are missing, plx is sent from this machine.
func TestFailedDownloadsFallBackToThisMachine(t *testing.T) {
	b, content := plxBlob(t, 300_000, true)
	seed := func(s Seed, err error) func(context.Context) (Seed, error) {
		return func(context.Context) (Seed, error) { return s, err }
	}
	for name, c := range map[string]struct {
		content []byte
		seed    func(context.Context) (Seed, error)
		tools   []string
		told    string
	}{
		"short":       {content: content[:1000], told: " received wrong content from 127.0.0.1:"},
		"long":        {content: append(bytes.Clone(content), 'x'), told: " received wrong content from 127.0.0.1:"},
		"other":       {content: bytes.Repeat([]byte("x"), len(content)), told: " received wrong content from 127.0.0.1:"},
		"nothing":     {content: nil, told: " received wrong content from 127.0.0.1:"},
		"no offer":    {seed: seed(Seed{}, errors.New("no port is free")), told: "no port is free"},
		"unreachable": {seed: seed(Seed{"127.0.0.1", "1", "token"}, nil), told: " could not download it from 127.0.0.1:1: "},
		"no address":  {seed: seed(Seed{"$(touch x)", "1", "token"}, nil), told: `"$(touch x)" is no address for a script`},
		"no bash":     {content: content, tools: append(without(), "timeout")},
		"no timeout":  {content: content, tools: append(without(), "bash")},
		"no hash":     {content: content, tools: append(without("sha256sum"), "bash", "timeout")},
		// A host that cannot hash sends the received file back for comparison.
		"short, no hash": {content: content[:1000], tools: append(without("sha256sum"), "bash", "timeout"), told: " received wrong content from 127.0.0.1:"},
		"long, no hash":  {content: append(bytes.Clone(content), 'x'), tools: append(without("sha256sum"), "bash", "timeout"), told: " received wrong content from 127.0.0.1:"},
		"other, no hash": {content: bytes.Repeat([]byte("x"), len(content)), tools: append(without("sha256sum"), "bash", "timeout"), told: " received wrong content from 127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &giver{t: t, content: c.content}
			hosts := newHosts(t, 5)
			for _, h := range hosts {
				if c.tools != nil {
					h.withPrograms(t, c.tools, nil)
				}
			}
			if c.seed == nil {
				c.seed = g.seed
			}
			var told []string
			got := place(t, NewSeeds(func(why string) { told = append(told, why) }), b, hosts, c.seed)
			want := len(hosts)
			if name == "no hash" {
				want = directSends // the other hosts download the binary, as its content is right
			}
			if err := errors.Join(got.errs...); err != nil || got.direct != want {
				t.Errorf("sent to %d hosts, want %d: %v", got.direct, want, err)
			}
			if text := strings.Join(told, "\n"); len(told) > 1 || !strings.Contains(text, c.told) || c.told == "" && text != "" {
				t.Errorf("told %q", told)
			}
			for _, h := range hosts {
				if has, err := os.ReadFile(h.path(b)); err != nil || !bytes.Equal(has, content) {
					t.Errorf("it has another content: %v", err)
				}
			}
		})
	}
}

// sharing returns n hosts that share a home directory.
func sharing(t *testing.T, n int) (hosts []*host) {
	one := newHost(t)
	for range n {
		hosts = append(hosts, &host{home: one.home})
	}
	return hosts
}

func TestSharedHomeGetsBinaryOnce(t *testing.T) {
	b, _ := plxBlob(t, 100_000, true)
	got := place(t, NewSeeds(nil), b, sharing(t, 8), nil)
	if err := errors.Join(got.errs...); err != nil || got.direct != 1 {
		t.Errorf("sent to %d hosts, %v", got.direct, err)
	}
}

// The first of several hosts that share a home directory may fail.
func TestSharedHomeWithAHostDown(t *testing.T) {
	b, _ := plxBlob(t, 100_000, true)
	hosts, seeds := sharing(t, 3), NewSeeds(nil)
	c := giving(b)
	c.Seeds = seeds
	var rest placed
	var others sync.WaitGroup
	hosts[0].write = func(s *shell, p []byte) (int, error) {
		if len(p) > 1000 { // this host now has the turn to get plx
			others.Go(func() { rest = place(t, seeds, b, hosts[1:], nil) })
		}
		return flipPayload(s, p)
	}
	hosts[0].refuses(t, c, "its SHA-256 on the host is ")
	others.Wait()
	if err := errors.Join(rest.errs...); err != nil || rest.direct != 1 {
		t.Errorf("sent to %d hosts, %v", rest.direct, err)
	}
}

// Machines made from one disk image use one name for two file systems. Hosts
// of two platforms may share a home directory and need two binaries.
func TestTwoFileSystemsWithSameName(t *testing.T) {
	b, _ := plxBlob(t, 2000, true)
	other, _ := plxBlob(t, 3000, true)
	log := filepath.Join(t.TempDir(), "slept")
	hosts, seeds := newHosts(t, 2), NewSeeds(nil)
	for _, h := range hosts {
		h.withPrograms(t, tools, map[string]string{"sleep": "echo x >>" + log})
		if err := firstError(os.Mkdir(h.home+"/.plx", 0o700), os.WriteFile(h.home+"/.plx/fsid", []byte(strings.Repeat("0a", 16)+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got := place(t, seeds, b, hosts, nil)
	if slept, _ := os.ReadFile(log); errors.Join(got.errs...) != nil || got.direct != 2 || string(slept) != "x\nx\nx\nx\nx\n" {
		t.Errorf("sent to %d hosts, %v, slept %q", got.direct, errors.Join(got.errs...), slept)
	}
	got = place(t, seeds, other, hosts[:1], nil)
	if slept, _ := os.ReadFile(log); errors.Join(got.errs...) != nil || got.direct != 1 || strings.Count(string(slept), "x") != 5 {
		t.Errorf("the other platform waits for a program that nobody has placed: %q, %v", slept, errors.Join(got.errs...))
	}
}

// A host that waits for another host with the same home directory stops
// waiting when its context is canceled.
func TestCanceledWaitForSharedHome(t *testing.T) {
	s, why := NewSeeds(nil), errors.New("enough")
	first, _, err := s.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	second, _, err := s.enter(ctx, "a")
	if err != why || second != nil {
		t.Errorf("%v, %v", second, err)
	}
	s.leave(second, "", nil)
	s.leave(first, "", nil)
	settled(t, s)
}

// After a slow start, later hosts still wait for the first ones.
func TestHostsWaitAfterASlowStart(t *testing.T) {
	s := NewSeeds(nil)
	s.moved = time.Now().Add(-2 * stallTimeout) // as if dialing and building had taken this long
	for range directSends {
		if from := s.choose(t.Context(), &turn{}, "sum", true); from != nil {
			t.Fatal("nobody can give it yet")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan bool, 1)
	go func() {
		s.choose(ctx, &turn{}, "sum", true)
		waits <- ctx.Err() != nil
	}()
	select {
	case <-waits:
		t.Error("the next host does not wait for the first ones")
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
}

package envsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/plx-run/plx/internal/patience"
)

// giver offers a blob on a loopback port, as the agent of a host does.
type giver struct {
	t       *testing.T
	content []byte
	given   atomic.Int64 // connections that got the content
	open    atomic.Int64 // offers that are not closed
}

func (g *giver) offer(context.Context) (Offer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Offer{}, err
	}
	g.open.Add(1)
	const token = "the token"
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close() // as at the end of the content
				told := make([]byte, len(token))
				if _, err := io.ReadFull(conn, told); err == nil && string(told) == token {
					g.given.Add(1)
					conn.Write(g.content) // who lacks something notices
				}
			}()
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return Offer{Host: "127.0.0.1", Port: port, Token: token, Close: func() {
		g.open.Add(-1)
		ln.Close() // it was only listened on
	}}, err
}

// targetsOf returns n hosts that offer.
func targetsOf(t *testing.T, n int, g *giver) (all []Target, hosts []*localHost) {
	for i := range n {
		h := newHost(t)
		hosts = append(hosts, h)
		all = append(all, Target{Name: fmt.Sprint("h", i), Host: h, Offer: g.offer})
	}
	return all, hosts
}

// This machine sends to the first hosts; the others take the blob from those.
func TestHostsGiveToOthers(t *testing.T) {
	program, content := programBlob(t, 300_000)
	g := &giver{t: t, content: content}
	targets, hosts := targetsOf(t, 9, g)
	last := map[string]int64{}
	if err := Sync(t.Context(), targets, program, func(host, _ string, sent, _ int64) { last[host] = sent }, nil); err != nil {
		t.Fatal(err)
	}
	direct := 0
	for i, h := range hosts {
		if h.sent.Load() > 0 {
			direct++
		}
		if !bytes.Equal(h.blob(t, program), content) || last[targets[i].Name] != program.Size {
			t.Errorf("%s has another content, or its progress ends at %d", targets[i].Name, last[targets[i].Name])
		}
		if left := h.leftovers(t); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
	}
	if direct != firsts || g.given.Load() != 9-firsts || g.open.Load() != 0 {
		t.Errorf("sent to %d hosts, given to %d, %d offers are open", direct, g.given.Load(), g.open.Load())
	}
	// Hosts that have it already give it to those that join.
	more, joined := targetsOf(t, 3, g)
	if err := Sync(t.Context(), append(more, targets...), program, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, h := range joined {
		if !bytes.Equal(h.blob(t, program), content) {
			t.Error("a host that joined has another content")
		}
	}
}

// A host that gives nothing, too little, something else, or has no tools costs time only.
func TestHostsThatGiveBadly(t *testing.T) {
	program, content := programBlob(t, 300_000)
	for name, spoil := range map[string]func(*giver, []Target, []*localHost){
		"short": func(g *giver, _ []Target, _ []*localHost) { g.content = content[:1000] },
		"other": func(g *giver, _ []Target, _ []*localHost) { g.content = bytes.Repeat([]byte("x"), len(content)) },
		"no offer": func(_ *giver, targets []Target, _ []*localHost) {
			for i := range targets {
				targets[i].Offer = func(context.Context) (Offer, error) { return Offer{}, errors.New("no port is free") }
			}
		},
		"unreachable": func(_ *giver, targets []Target, _ []*localHost) {
			for i := range targets {
				targets[i].Offer = func(context.Context) (Offer, error) {
					return Offer{Host: "127.0.0.1", Port: "1", Close: func() {}}, nil
				}
			}
		},
		"no address": func(_ *giver, targets []Target, _ []*localHost) {
			for i := range targets {
				targets[i].Offer = func(context.Context) (Offer, error) {
					return Offer{Host: "$(touch x)", Port: "1", Close: func() {}}, nil
				}
			}
		},
		"no bash": func(_ *giver, _ []Target, hosts []*localHost) {
			for _, h := range hosts {
				withPrograms(t, h, []string{"sh", "cat", "mkdir", "chmod", "ls", "find", "stat", "head", "touch", "mv", "rm", "sha256sum", "sync", "timeout"}, nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := &giver{t: t, content: content}
			targets, hosts := targetsOf(t, 5, g)
			spoil(g, targets, hosts)
			ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
			defer cancel()
			var told []string
			if err := Sync(ctx, targets, program, nil, func(why string) { told = append(told, why) }); err != nil {
				t.Fatal(err)
			}
			if len(told) != 1 && name != "no bash" || len(told) > 0 && name == "no bash" {
				t.Errorf("told %q", told)
			}
			for _, h := range hosts {
				if !bytes.Equal(h.blob(t, program), content) || h.sent.Load() == 0 {
					t.Errorf("it has another content, or nothing was sent: %d", h.sent.Load())
				}
				if left := h.leftovers(t); len(left) != 0 {
					t.Errorf("left over: %v", left)
				}
			}
			if g.open.Load() != 0 {
				t.Errorf("%d offers are open", g.open.Load())
			}
		})
	}
}

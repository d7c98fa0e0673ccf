package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/transport"
)

// silent is a connection to a host that no test uses.
type silent struct{}

func (silent) Run(context.Context, string, io.Reader, io.Writer, io.Writer) error { return nil }
func (silent) Copy(context.Context, io.Reader, string) error                      { return nil }
func (silent) Close() error                                                       { return nil }

// Of 200 hosts, at most FanOut are dialed at once, and all are connected in
// the end.
func TestAtMostFanOutHostsAreDialedAtOnce(t *testing.T) {
	const hosts = 200
	synctest.Test(t, func(t *testing.T) {
		f := &Set{turns: make(chan struct{}, FanOut)}
		var now, connected atomic.Int64
		answer := make(chan struct{})
		dial := f.limitDials("h", func(context.Context) (transport.Transport, error) {
			now.Add(1)
			defer now.Add(-1)
			<-answer
			return silent{}, nil
		})
		for i := range hosts {
			r := NewHost(hostfile.Host{Name: fmt.Sprint("h", i)}, dial)
			f.Hosts = append(f.Hosts, r)
			go func() {
				if err := r.Dial(t.Context()); err != nil {
					t.Error(err)
				}
				connected.Add(1)
			}()
		}
		for done := range hosts {
			synctest.Wait()
			if n := now.Load(); n != min(FanOut, hosts-int64(done)) || connected.Load() != int64(done) {
				t.Fatalf("%d hosts are dialled at once, %d connected, after %d answers", n, connected.Load(), done)
			}
			answer <- struct{}{}
		}
		synctest.Wait()
		for _, r := range f.Hosts {
			if !r.Connected() {
				t.Errorf("host %s: no connection", r.Name())
			}
		}
	})
}

// Each host is dialed when it is its turn. Waiting for the turn ends if the
// context is canceled.
func TestFirstDialsWaitForFreeSlot(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for name, reach := range map[string]Reach{
		"over SSH": {Hosts: []hostfile.Host{{Name: "h1"}, {Name: "localhost"}}},
		"embedded": {LocalHosts: 2, LocalWorkers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(t.Context(), reach, console.NewPrinter(console.Terminal{Stderr: io.Discard}))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() // nothing was dialled
			for range FanOut {
				f.turns <- struct{}{}
			}
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(enough)
			for _, r := range f.Hosts {
				if err := r.Dial(ctx); err != enough {
					t.Errorf("host %s: %v", r.Name(), err)
				}
			}
		})
	}
}

// A host that was connected before is redialed without waiting, because its
// lease may expire.
func TestReconnectionsDoNotWait(t *testing.T) {
	f, down := &Set{turns: make(chan struct{}, FanOut)}, errors.New("down")
	results := []error{down, nil, down, nil}
	dial := f.limitDials("h", func(context.Context) (transport.Transport, error) {
		err := results[0]
		results = results[1:]
		return nil, err
	})
	enough := errors.New("enough")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	all := func(take bool) {
		for range FanOut {
			if take {
				f.turns <- struct{}{}
			} else {
				<-f.turns
			}
		}
	}
	for i, c := range []struct {
		full bool
		want error
	}{{false, down}, {true, enough}, {false, nil}, {true, down}, {true, nil}} {
		ctx := t.Context()
		if c.full {
			all(true)
			ctx = over
		}
		if _, err := dial(ctx); err != c.want {
			t.Errorf("dial %d: %v, want %v", i, err, c.want)
		}
		if c.full {
			all(false)
		}
	}
}

// A host that joins a job gets plx as other hosts do, with a progress display
// that ends.
func TestTransferToAddedHostsIsDisplayed(t *testing.T) {
	var said bytes.Buffer
	s := &Set{printer: console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: &said})}
	other, err := Open(t.Context(), Reach{Hosts: []hostfile.Host{{Name: "h1.invalid"}}}, console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: io.Discard}))
	if err != nil {
		t.Fatal(err)
	}
	s.Add(other)
	s.Hosts[0].set.showSent("h1", "plx", 10, 10)
	s.Hosts[0].set.countSent(10)
	s.Placed(nil)
	if !strings.HasPrefix(said.String(), "plx: sent plx (10 B) to 1 host") {
		t.Errorf("%q", said.String())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

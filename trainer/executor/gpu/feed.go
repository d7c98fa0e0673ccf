package gpu

import (
	"bytes"
	"errors"
	"sync"

	"github.com/plx-run/plx/trainer/executor/device"
)

// feed is a value that a run copies to the GPU.
type feed struct {
	at     device.Pointer
	host   []byte                 // pinned
	from   []byte                 // the caller's memory of a fixed value; nil for other feeds
	fill   func(host []byte) bool // writes host before the copy, and reports a change; nil for an input, which the caller fills
	read   bool                   // some instruction waits for the copy
	stays  bool                   // the GPU has the value, which no run copies
	copied device.Event
}

// feeds copies all feeds of a machine to the GPU.
type feeds struct {
	gpu    *Device
	stream device.Stream
	all    []feed // in the order in which instructions need them: inputs, fixed values, random streams
	fixed  int    // index of the first fixed value

	mu      sync.Mutex // held while Renew puts a copy on the stream
	refused error      // of the first copy of Renew that the driver refused; the next run returns it
}

// add gives a feed pinned memory of n bytes, which it returns.
func (a *feeds) add(f feed, n int) (host []byte, err error) {
	if f.host, err = a.gpu.pinned(n); err != nil {
		return nil, err
	}
	if f.copied, err = a.gpu.NewEvent(); err != nil {
		return nil, err
	}
	a.all = append(a.all, f)
	return f.host, nil
}

// keep ends the copies of fixed values. It returns the indices of all other feeds.
func (a *feeds) keep() (others []int) {
	for i := range a.all {
		if f := &a.all[i]; f.from != nil {
			f.stays = true
		} else {
			others = append(others, i)
		}
	}
	return others
}

// copyIn puts the copies of inputs and fixed values on their stream, of those that
// have not changed since an earlier run only if all is set.
func (a *feeds) copyIn(all bool) error {
	if a.refused != nil {
		return a.refused
	}
	for i := range a.all {
		f := &a.all[i]
		if f.stays || f.fill != nil && !f.fill(f.host) && !all {
			continue // the GPU has it, or Renew has put its copy on the stream
		}
		if err := a.copyPart(f, 0, len(f.host)); err != nil {
			return err
		}
	}
	return nil
}

// copyPart puts the copy of bytes [from, to) of a feed on the stream.
func (a *feeds) copyPart(f *feed, from, to int) error {
	if err := a.stream.In(f.at+device.Pointer(from), f.host[from:to]); err != nil {
		return err
	}
	return a.stream.Record(f.copied)
}

// renew copies bytes [from, to) of a fixed value, see Machine.Renew. An earlier copy
// of a value that nothing waits for may still be under way, so a run copies it.
func (a *feeds) renew(i, from, to int) {
	f := &a.all[a.fixed+i]
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused != nil || f.stays || !f.read || from == to {
		return
	}
	copy(f.host[from:to], f.from[from:to])
	a.refused = a.copyPart(f, from, to)
}

func (a *feeds) close() error {
	all := []error{a.stream.Close()}
	for _, f := range a.all {
		all = append(all, a.gpu.FreeHost(f.host), f.copied.Close())
	}
	return errors.Join(all...)
}

// update makes to equal to from, and reports whether it was not.
func update(to, from []byte) bool {
	if bytes.Equal(to, from) {
		return false
	}
	copy(to, from)
	return true
}

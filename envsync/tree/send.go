package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/fanout"
)

// Put has a host run Store.Serve, which reads stdin and writes stdout. If it fails, the error tells
// what it said.
type Put func(ctx context.Context, stdin io.Reader, stdout io.Writer) error

// Target is one host to bring a folder to.
type Target struct {
	Name string // the host's name in errors and progress
	// FileSystem is as in envsync.Facts: hosts with equal names share the home folder. Empty
	// means that no other host shares it.
	FileSystem string
	Put        Put
	Addr       string // the host's address for other targets, without a port; "": it passes nothing on to them
}

// SendOptions are how folders are sent. The zero value is useful.
type SendOptions struct {
	Progress envsync.Progress        // may be nil
	Left     func(bytes int64)       // counts contents that leave this machine; may be nil
	Low      int                     // first and last port for what hosts pass on; 0 and 0: any
	High     int                     // see Low
	Spool    func(size int64) string // returns the folder for a file of about size bytes; nil: that for temporary files
	Lost     func(what []string)     // told at the end what hosts could not pass on, and this machine has sent; may be nil
}

// Answer is what Serve writes at its end.
const Answer = "ok\n"

// Send brings the contents of a folder into the stores of hosts, all at once. A host
// is told the manifest, answers which contents it lacks, and gets those. Hosts that lack
// the same ones pass them on to each other, see package fanout. Nothing that is cut off
// or damaged on the way gets into a store.
//
// The error joins one for each host that failed. If a file here cannot be read any
// more, or has changed, all hosts fail for one reason, which is told once.
func Send(ctx context.Context, targets []Target, f *Folder, o SendOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &sender{ctx: ctx, folder: f, options: o, hosts: len(targets), packs: map[string]*pack{}, cancel: cancel}
	err := each(ctx, targets, func(t Target) error { return s.host(ctx, t) })
	cancel(nil)
	var lost []string
	for _, p := range s.packs {
		lost = append(lost, p.group.Lost()...)
		err = errors.Join(err, p.Close())
	}
	if len(lost) > 0 && o.Lost != nil {
		o.Lost(lost)
	}
	if s.unread != nil {
		return fmt.Errorf("%s: %w", describe(targets), s.unread)
	}
	return err
}

// maxHosts is how many hosts are worked on at once.
const maxHosts = 64

// each calls work for every target, for many at once. Of hosts that share a home it works
// on one after the other until one has succeeded, and then on the rest at once: each of
// those looks for itself what it has, since equal names of file systems may also come from
// a copied disk. The error joins those of all targets, with their names.
func each(ctx context.Context, targets []Target, work func(Target) error) error {
	slots := make(chan struct{}, maxHosts)
	errs := make([]error, len(targets))
	one := func(i int) error {
		var err error
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			err = work(targets[i])
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			errs[i] = fmt.Errorf("host %s: %w", targets[i].Name, err)
		}
		return err
	}
	var wait sync.WaitGroup
	for _, group := range sharing(targets) {
		wait.Go(func() {
			for len(group) > 0 && one(group[0]) != nil {
				group = group[1:]
			}
			for _, i := range group[min(1, len(group)):] {
				wait.Go(func() { _ = one(i) }) // errs has it
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// sharing returns the indices of targets, those with one file system together
// and in the order of their first host.
func sharing(targets []Target) [][]int {
	var groups [][]int
	byFileSystem := map[string]int{}
	for i, t := range targets {
		at, known := byFileSystem[t.FileSystem]
		if !known || t.FileSystem == "" {
			at = len(groups)
			groups = append(groups, nil)
			byFileSystem[t.FileSystem] = at
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// describe names targets, the first one by its name.
func describe(targets []Target) string {
	switch more := len(targets) - 1; more {
	case 0:
		return "host " + targets[0].Name
	case 1:
		return "hosts " + targets[0].Name + " and " + targets[1].Name
	default:
		return fmt.Sprintf("host %s and %d others", targets[0].Name, more)
	}
}

// Bounds of waiting for a host. A home on a stuck file server answers never.
const (
	answerTime = time.Minute // until a host has told what it lacks, or has written what it got
	slowest    = 1 << 20     // bytes per second that a host hashes or writes at least
)

type sender struct {
	ctx     context.Context // ends the work on all hosts
	folder  *Folder
	options SendOptions
	hosts   int                     // number of targets
	cancel  context.CancelCauseFunc // ends the work on all hosts

	mu     sync.Mutex
	packs  map[string]*pack // by the answer of a host
	unread error            // why a file here could not be packed; nil: none was
}

// host brings one host what it lacks.
func (s *sender) host(ctx context.Context, t Target) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := t.Put(ctx, in, out)
		out.CloseWithError(err) // nil reads as io.EOF
		in.CloseWithError(io.ErrClosedPipe)
		ended <- err
	}()
	err := s.talk(ctx, cancel, t, stdin, stdout)
	why := context.Cause(ctx) // plx gave up on the host
	local := err != nil && !errors.Is(err, io.ErrClosedPipe)
	if local {
		cancel(err) // the host waits for more
	}
	stdin.Close()
	stdout.Close() // of no more use
	said := <-ended
	switch {
	case local:
		return cmp.Or(why, err)
	case err != nil:
		return cmp.Or(why, said, errEarly)
	}
	return cmp.Or(why, said)
}

var errEarly = errors.New("the host has ended before it had all files")

// limit gives up on a host that has not done something in time. The result ends the
// limit.
func limit(cancel context.CancelCauseFunc, size int64, what string) (stop func() bool) {
	d, late := bound(size, what)
	return time.AfterFunc(d, func() { cancel(late) }).Stop
}

// AnswerLimit is how long a host may take to look for size bytes, which it may have to hash.
func AnswerLimit(size int64) time.Duration {
	return answerTime + time.Duration(size/slowest)*time.Second
}

// bound returns how long a host may take for what concerns size bytes, and the error of
// one that takes longer.
func bound(size int64, what string) (time.Duration, error) {
	d := AnswerLimit(size)
	return d, fmt.Errorf("it has not %s within %s: is its file system stuck?", what, d)
}

// talk is the client's side of Serve.
func (s *sender) talk(ctx context.Context, cancel context.CancelCauseFunc, t Target, stdin io.WriteCloser, stdout *io.PipeReader) error {
	_, size := s.folder.Files()
	stop := limit(cancel, size, "told what it lacks")
	defer stop()
	if err := s.folder.Write(stdin); err != nil {
		return err
	}
	lacks := NewSet(s.folder.Manifest)
	if _, err := io.ReadFull(stdout, lacks); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEarly
	} else if err != nil {
		return err
	}
	stop()
	missing, err := lacks.Pieces(s.folder.Manifest)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return s.send(ctx, cancel, t, string(lacks), missing, stdin, stdout)
	}
	if err := stdin.Close(); err != nil {
		return err
	}
	defer limit(cancel, size, "confirmed that it has the files")()
	answer, err := io.ReadAll(io.LimitReader(stdout, int64(len(Answer))))
	if err == nil && string(answer) != Answer {
		err = errors.New("the host has not confirmed that it has all files")
	}
	return err
}

// send sends pieces, which hosts with the same answer share.
func (s *sender) send(ctx context.Context, cancel context.CancelCauseFunc, t Target, answer string, pieces []Piece, stdin io.WriteCloser, stdout *io.PipeReader) error {
	s.mu.Lock()
	p, err := s.packs[answer], error(nil)
	if p == nil {
		if p, err = newPack(s.ctx, s.folder, pieces, s.hosts, s.options); err == nil {
			s.packs[answer] = p
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.tell(t.Name, 0, p.total())
	to := stdin
	if s.options.Left != nil {
		to = &counted{stdin, s.options.Left}
	}
	_, size := s.folder.Files()
	patience, silent := bound(size, "stored the files")
	err = p.group.Send(ctx, fanout.Host{Name: t.Name, Addr: t.Addr}, to, stdout, fanout.Watch{
		// A command that does not end at once is not waited for.
		Fail: func(err error) {
			cancel(err)
			stdout.Close() // only read from
		},
		Patience: patience, Silent: silent,
		At: func(n int64) { s.tell(t.Name, n, p.total()) },
	})
	if unread := p.Failed(); unread != nil {
		s.fail(unread)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEarly
	} else if err != nil {
		return err
	}
	s.tell(t.Name, p.total(), p.total())
	return stdin.Close()
}

// fail ends the work on all hosts: a file here cannot be read.
func (s *sender) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread == nil && s.ctx.Err() == nil {
		s.unread = err
	}
	s.cancel(err)
}

func (s *sender) tell(host string, sent, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Progress != nil {
		s.options.Progress(host, "working directory", sent, total)
	}
}

type counted struct {
	io.WriteCloser
	tell func(bytes int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.WriteCloser.Write(p)
	c.tell(int64(n))
	return n, err
}

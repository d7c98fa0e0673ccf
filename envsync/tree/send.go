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

// Put runs Store.Serve on a host, with the given standard input and output. If
// the command fails, Put returns an error with the command's error message.
type Put func(ctx context.Context, stdin io.Reader, stdout io.Writer) error

// Target is a host that is to receive a folder.
type Target struct {
	Name string // name of the host in errors and progress reports
	// FileSystem identifies the file system of the host's home folder, see
	// envsync.Facts. Hosts with equal values share the home folder; an empty
	// value means that no other host shares it.
	FileSystem string
	Put        Put
	Addr       string // address, without a port, at which other targets can reach the host; "" if the host must not forward files to other targets
}

// SendOptions control Send. The zero value is ready to use.
type SendOptions struct {
	Progress envsync.Progress        // called with the progress of each host; may be nil
	Sent     func(bytes int64)       // called after each write to a host, with the number of content bytes written; may be nil
	Low      int                     // first port on which hosts listen to forward data to each other; any port if Low and High are 0
	High     int                     // last port on which hosts listen to forward data to each other; any port if Low and High are 0
	Spool    func(size int64) string // returns the folder for a temporary file of about size bytes; if nil, the file is in os.TempDir()
	Lost     func(what []string)     // called at the end, with a message for each connection between two hosts that failed, so that this machine sent the data itself; may be nil
}

// DoneReply is the last line that Store.Serve writes. It means that the host
// has all files.
const DoneReply = "ok\n"

// Send copies the files of a folder into the content stores (files stored by
// checksum) of all targets in parallel. Each host receives the manifest,
// replies which contents it lacks, and receives those. Hosts that lack the
// same contents forward them to each other, see package fanout. A host
// verifies each content, so nothing incomplete or corrupt gets into a store.
//
// The error joins one error per failed host. If a local file cannot be read or
// has changed, all hosts fail with the same error, which is reported once.
func Send(ctx context.Context, targets []Target, f *Folder, o SendOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &sender{ctx: ctx, folder: f, options: o, hosts: len(targets), packs: map[string]*pack{}, cancel: cancel}
	err := forEachHost(ctx, targets, func(t Target) error { return s.host(ctx, t) })
	cancel(nil)
	var lost []string
	for _, p := range s.packs {
		lost = append(lost, p.group.FailedLinks()...)
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

// maxHosts is the maximum number of hosts that Send serves at once.
const maxHosts = 64

// forEachHost calls work for every target, for up to maxHosts at once. Targets
// that seem to share a home folder are processed one after the other, until
// work succeeds for one of them. The others are then processed in parallel.
// They usually lack nothing, but work checks this: a copied disk has the same
// identifier although it is another file system. The error joins the errors of
// all targets, prefixed with their names.
func forEachHost(ctx context.Context, targets []Target, work func(Target) error) error {
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
				wait.Go(func() { _ = one(i) }) // the error is stored in errs, so the result is not needed
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// sharing groups the indices of targets that have the same file system. The
// groups are sorted by their first index.
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

// describe returns the targets' names for a message. If there are more than
// two targets, it names the first and gives the number of the others.
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

// Parameters of the timeout for a host's replies. Without a timeout, plx would
// wait forever for a host whose home folder is on a hung file server.
const (
	answerTime = time.Minute // time limit for a host to report which contents it lacks, or to write them, without the time for the bytes at the speed slowest
	// slowest is the assumed minimum speed, in bytes per second, at which a
	// host hashes or writes files.
	//
	// TODO: measure the speed of hosts with a slow file server; 1 MiB/s is a
	// guess.
	slowest = 1 << 20
)

type sender struct {
	ctx     context.Context // cancelled to stop the transfers to all hosts
	folder  *Folder
	options SendOptions
	hosts   int                     // number of targets
	cancel  context.CancelCauseFunc // cancels ctx, and so the transfers to all hosts

	mu     sync.Mutex
	packs  map[string]*pack // by bit set of the pieces that a host lacks: the pack (stream) with these pieces
	unread error            // first error of a local file that could not be packed, or nil
}

// host sends the contents that the host t lacks.
func (s *sender) host(ctx context.Context, t Target) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := t.Put(ctx, in, out)
		out.CloseWithError(err) // if the error is nil, the reader gets io.EOF
		in.CloseWithError(io.ErrClosedPipe)
		ended <- err
	}()
	err := s.talk(ctx, cancel, t, stdin, stdout)
	// The cause is not nil if plx itself has aborted the transfer.
	why := context.Cause(ctx)
	local := err != nil && !errors.Is(err, io.ErrClosedPipe)
	if local {
		// The error occurred on the local machine, so the host still waits for
		// data: cancel its command.
		cancel(err)
	}
	stdin.Close()
	stdout.Close() // the reading end of a pipe, of which no more data is needed: Close returns no error
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

// startTimeout cancels the transfer unless stop is called within the time that
// a host may take for size bytes. The parameter what completes the error
// message "the host has not ...".
func startTimeout(cancel context.CancelCauseFunc, size int64, what string) (stop func() bool) {
	d, late := bound(size, what)
	return time.AfterFunc(d, func() { cancel(late) }).Stop
}

// AnswerLimit returns how long a host may take to check contents of size
// bytes. The host may have to hash them.
func AnswerLimit(size int64) time.Duration {
	return answerTime + time.Duration(size/slowest)*time.Second
}

// bound returns how long a host may take to process size bytes, and the error
// for a host that takes longer. The parameter what completes the error message
// "the host has not ...".
func bound(size int64, what string) (time.Duration, error) {
	d := AnswerLimit(size)
	return d, fmt.Errorf("timed out after %s: the host has not %s (file system hung?)", d, what)
}

// talk exchanges messages with Store.Serve (the receiving program) on the host
// t: it sends the manifest, reads which pieces the host lacks, and sends these
// pieces.
func (s *sender) talk(ctx context.Context, cancel context.CancelCauseFunc, t Target, stdin io.WriteCloser, stdout *io.PipeReader) error {
	_, size := s.folder.Files()
	stop := startTimeout(cancel, size, "reported which files it lacks")
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
	defer startTimeout(cancel, size, "confirmed that it has the files")()
	answer, err := io.ReadAll(io.LimitReader(stdout, int64(len(DoneReply))))
	if err == nil && string(answer) != DoneReply {
		err = errors.New("the host has not confirmed that it has all files")
	}
	return err
}

// send sends the pieces that the host t lacks. The parameter answer is the
// host's reply, a bit set of these pieces. Hosts with the same reply receive
// the same pack (stream of pieces).
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
	s.progress(t.Name, 0, p.total())
	to := stdin
	if s.options.Sent != nil {
		to = &counted{stdin, s.options.Sent}
	}
	_, size := s.folder.Files()
	patience, silent := bound(size, "stored the files")
	err = p.group.Send(ctx, fanout.Host{Name: t.Name, Addr: t.Addr}, to, stdout, fanout.Watch{
		// A command may run on for a while after it was cancelled. Closing
		// stdout ends the wait for its output.
		Fail: func(err error) {
			cancel(err)
			stdout.Close() // the reading end of a pipe: Close returns no error
		},
		Timeout: patience, TimeoutErr: silent,
		Progress: func(n int64) { s.progress(t.Name, n, p.total()) },
	})
	if unread := p.Failed(); unread != nil {
		s.fail(unread)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errEarly
	} else if err != nil {
		return err
	}
	s.progress(t.Name, p.total(), p.total())
	return stdin.Close()
}

// fail records that a local file cannot be read, and cancels the transfers to
// all hosts.
func (s *sender) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread == nil && s.ctx.Err() == nil {
		s.unread = err
	}
	s.cancel(err)
}

func (s *sender) progress(host string, sent, total int64) {
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

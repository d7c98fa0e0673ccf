package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// kind is the type of a message between a task and the chief (worker 0).
type kind string

// The kinds of messages. The first five go from a task to the chief, the
// others from the chief to a task. A request has a Number, and its answer has
// the same Number.
const (
	hello    kind = "hello"    // task to chief: I have opened my store, and created a probe (a folder with a random name, here in Token) in my checkpoint folder
	answer   kind = "answer"   // task to chief: the answer to the request of the same Number, or an error in Err
	reported kind = "report"   // task to chief: Report says that my part of a save, or my copy of a file, is done or has failed
	restored kind = "restored" // task to chief: I have restored everything and read no more of the checkpoint
	leave    kind = "leave"    // task to chief: I am about to end
	probes   kind = "look"     // request of the chief: which of the probes Tokens does your folder contain?
	joined   kind = "joined"   // chief to task: all tasks have opened their stores
	list     kind = "list"     // request of the chief: which checkpoints does your folder hold? The answer has FolderCopies
	verify   kind = "verify"   // request of the chief: does File of checkpoint ID in your folder have the right checksum?
	chosen   kind = "chosen"   // chief to task: resume from the manifest in Body; Holders says which tasks have its files; an empty Body means begin from scratch
	begin    kind = "begin"    // chief to task: a save begins; write the files that Wanted names
	keep     kind = "keep"     // chief to task: make a second copy of File of checkpoint ID, from the task that wrote it
	commit   kind = "commit"   // request of the chief: write the manifest in Body to your folder
	retain   kind = "retain"   // chief to task: delete all but the newest Keep checkpoints
	over     kind = "over"     // chief to task: the save of checkpoint ID has ended; if Remove is set, it failed: delete its files
	bye      kind = "bye"      // chief to task: no task needs you any more, you may end
)

// message is what a task and the chief send each other, as JSON. Kind says
// which fields are set.
type message struct {
	Kind kind `json:"kind"`
	// Number pairs a request with its answer. A begin message uses it for the
	// number that the shard holders give to this save. In all other messages
	// it is 0.
	Number  uint64                    `json:"number,omitempty"`
	Err     string                    `json:"error,omitempty"` // why the sender failed; empty means success
	ID      string                    `json:"id,omitempty"`    // ID of the checkpoint that the message is about
	Step    uint64                    `json:"step,omitempty"`  // number of training steps in the checkpoint
	Token   string                    `json:"token,omitempty"`
	Tokens  []string                  `json:"tokens,omitempty"`
	Holding []announced               `json:"holding,omitempty"`
	Holders map[string][]cluster.Task `json:"holders,omitempty"` // by file name: the tasks whose folders have the file
	File    *checkpoint.File          `json:"file,omitempty"`
	Wanted  wanted                    `json:"wanted,omitzero"`
	Report  *report                   `json:"report,omitempty"`
	Keep    int                       `json:"keep,omitempty"`
	Remove  bool                      `json:"remove,omitempty"` // only in over messages: true if the save has failed and the task must delete its files
	Body    []byte                    `json:"body,omitempty"`   // manifest as Manifest.Encode returned it
}

// announced is the form of a checkpoint.FolderCopy in a message. It lists the files
// of a checkpoint that one folder holds.
type announced struct {
	ID       string           `json:"id"`
	Manifest []byte           `json:"manifest,omitempty"` // manifest as Manifest.Encode returned it; empty if the folder has no valid manifest
	Damage   string           `json:"damage,omitempty"`   // why Manifest is empty; "" if Manifest is set
	Files    map[string]int64 `json:"files,omitempty"`    // size of each data file in bytes, by file name
}

// wanted says what a task must write in a save.
type wanted struct {
	Pieces bool `json:"pieces,omitempty"` // true if the task writes its pieces of variables to a file
	State  bool `json:"state,omitempty"`  // true if the task is a worker and writes its recurrent state to a file
}

// report is what a task sends to the chief after writing its part of a save,
// or after copying another task's file.
type report struct {
	State   bool                 `json:"state,omitempty"` // true if the part is a worker's recurrent state, false if it is pieces of variables
	Err     string               `json:"error,omitempty"` // why the part or the copy failed; empty means success
	File    *checkpoint.File     `json:"file,omitempty"`  // the file that was written or copied; nil if there was nothing to write
	Copy    bool                 `json:"copy,omitempty"`  // true if the task has made a copy of File, which another task wrote
	Parts   []checkpoint.Part    `json:"parts,omitempty"`
	Carried []checkpoint.Carried `json:"carried,omitempty"`
	Held    int64                `json:"held,omitempty"` // nanoseconds for which training waited for the shard holder's snapshot; 0 for recurrent state
}

const (
	maxManifest = 64 << 20                 // largest size of a manifest in bytes
	maxMessage  = 16<<20 + maxManifest/3*4 // largest size of a message in bytes; base64 makes a manifest in a message a third longer
	maxCause    = 4 << 10                  // largest size of an error text in a message, in bytes
)

// failure returns the text of err, shortened for a message; "" if err is nil.
func failure(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if text == "" {
		text = "unknown"
	}
	return text[:min(len(text), maxCause)]
}

// reason returns the error that the chief has put into m, or nil if m has no
// error.
func (m message) reason() error {
	if m.Err == "" {
		return nil
	}
	return peers.DecodeReport([]byte(m.Err))
}

// mailbox is a queue of messages without a limit. post never blocks. One
// goroutine calls run, which delivers the messages in order.
type mailbox struct {
	mu     sync.Mutex
	queue  []message
	posted chan struct{} // holds a token if run must look at the queue again
}

func newMailbox() *mailbox { return &mailbox{posted: make(chan struct{}, 1)} }

func (b *mailbox) post(m message) {
	b.mu.Lock()
	b.queue = append(b.queue, m)
	b.mu.Unlock()
	select {
	case b.posted <- struct{}{}:
	default: // the channel already holds a token
	}
}

// run passes each posted message to deliver, until ctx ends or deliver fails.
// It returns the cause of ctx or the error of deliver.
func (b *mailbox) run(ctx context.Context, deliver func(message) error) error {
	for {
		b.mu.Lock()
		all := b.queue
		b.queue = nil
		b.mu.Unlock()
		for _, m := range all {
			if err := deliver(m); err != nil {
				return err
			}
		}
		select {
		case <-b.posted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// event is something that happens at most once, with success or with an error.
type event struct {
	once sync.Once
	done chan struct{} // closed once the event has happened
	err  error         // why the event failed, nil if it succeeded; valid once done is closed
}

func newEvent() event { return event{done: make(chan struct{})} }

// take makes the event happen with the outcome err. Later calls have no
// effect.
func (t *event) take(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}

// over reports whether the event has happened.
func (t *event) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// errDone is returned by a message handler to end the connection without an
// error.
var errDone = errors.New("the conversation is over")

// converse sends the messages of the mailbox out over session s, and passes
// received messages to handle. It ends when s or ctx ends or handle fails, and
// returns the reason.
func converse(ctx context.Context, s *peers.Session, out *mailbox, handle func(message) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var sending sync.WaitGroup
	sending.Go(func() {
		cancel(out.run(ctx, func(m message) error { return s.SendJSON(wire.Message, m, maxMessage) }))
	})
	defer s.CloseWith(ctx)()
	err := error(nil)
	for err == nil {
		var m message
		if err = s.NextJSON(wire.Message, &m, maxMessage); err == nil {
			err = handle(m)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, errDone) {
		err = context.Cause(ctx) // Return the cause of ctx instead: the error of a closed session does not say why it was closed.
	}
	cancel(err)
	sending.Wait()
	return err
}

// join connects this task to the chief's store, and waits until the chief
// reports that all tasks are connected.
func (s *Store) join(ctx context.Context, first message) error {
	c := s.config
	session, err := peers.Open(ctx, c.Peers, cluster.Chief, c.Cluster.Addr(cluster.Chief), purpose, c.Silence)
	if err != nil {
		return c.blame(cluster.Chief, err)
	}
	s.up.post(first)
	s.life.Go(func(ctx context.Context) {
		defer session.Close() // error ignored: the connection has ended
		s.parted(converse(ctx, session, s.up, func(m message) error { return s.handle(ctx, m) }))
	})
	select {
	case <-s.joined.done:
		return s.joined.err
	case <-ctx.Done():
		return c.blame(cluster.Chief, fmt.Errorf("did not report that all tasks are connected: %w", context.Cause(ctx)))
	}
}

// parted records that the connection to the chief has ended for the reason
// err. It cancels everything in this task that waits for the chief.
func (s *Store) parted(err error) {
	if errors.Is(err, errDone) {
		err = nil
	} else {
		err = s.config.blame(cluster.Chief, err)
	}
	s.gone.take(err)
	if err == nil {
		err = s.config.blame(cluster.Chief, errors.New("it has ended"))
	}
	s.joined.take(err)
	s.decision.take(err)
	s.parts.cancel(err)
}

// handle executes one message of the chief. It must not block, because the
// next message is read only after handle has returned.
func (s *Store) handle(ctx context.Context, m message) error {
	switch m.Kind {
	case probes:
		s.reply(m, func() (message, error) {
			seen := slices.DeleteFunc(slices.Clone(m.Tokens), func(token string) bool { return !s.folder.Sees(token) })
			return message{Tokens: seen}, nil
		})
	case joined:
		s.joined.take(m.reason())
	case list:
		s.reply(m, func() (message, error) { return announce(s.folder) })
	case verify:
		s.reply(m, func() (message, error) {
			if m.File == nil {
				return message{}, errors.New("no file is named")
			}
			return message{}, s.folder.Verify(m.ID, *m.File)
		})
	case commit:
		s.reply(m, func() (message, error) { return message{}, s.parts.commit(m) })
	case chosen:
		return s.decision.learn(s, m)
	case begin:
		s.parts.begin(ctx, m)
	case keep:
		return s.parts.keep(m)
	case over:
		s.parts.finish(m)
	case retain:
		s.life.Go(func(context.Context) { s.parts.retain(m.Keep) })
	case bye:
		return errDone
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// reply calls find in the background. It posts the message that find returns,
// as the answer to a request.
func (s *Store) reply(request message, find func() (message, error)) {
	s.life.Go(func(context.Context) {
		m, err := find()
		m.Kind, m.Number, m.Err = answer, request.Number, failure(err)
		s.up.post(m)
	})
}

// announce lists the checkpoints in a folder for a message, the newest first.
// If their manifests are too large for one message, it omits the manifests of
// the oldest checkpoints.
func announce(folder *checkpoint.Folder) (m message, err error) {
	holding, err := folder.List()
	size := 0
	for _, h := range holding {
		a := announced{ID: h.ID, Damage: h.Damage, Files: h.Files}
		if h.Manifest != nil {
			b, err := h.Manifest.Encode()
			if size += len(b); err == nil && size > maxManifest {
				err = fmt.Errorf("the manifests up to this one have more than %d bytes", maxManifest)
			}
			if err != nil {
				a.Damage = err.Error()
			} else {
				a.Manifest = b
			}
		}
		m.Holding = append(m.Holding, a)
	}
	return m, err
}

// held converts the form in which a message describes a folder's copy of a
// checkpoint back to a checkpoint.FolderCopy.
func (a announced) held() checkpoint.FolderCopy {
	h := checkpoint.FolderCopy{ID: a.ID, Damage: a.Damage, Files: a.Files}
	if len(a.Manifest) > 0 {
		var err error
		if h.Manifest, err = checkpoint.DecodeManifest(a.Manifest); err != nil {
			h.Damage = err.Error()
		}
	}
	return h
}

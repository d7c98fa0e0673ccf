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

// kind says what a message is for.
type kind string

// The kinds of messages, by who sends them. A question has a number, and its
// answer has the same.
const (
	hello    kind = "hello"    // task: Token is in its folder
	answer   kind = "answer"   // task: what it was asked, or Err
	reported kind = "report"   // task: Report, its part of a save or a copy, is done or has failed
	restored kind = "restored" // task: will read no more
	leave    kind = "leave"    // task: is about to end
	look     kind = "look"     // chief: which of Tokens do you see?
	joined   kind = "joined"   // chief: all tasks are there
	list     kind = "list"     // chief: the Holding of your folder?
	verify   kind = "verify"   // chief: is File of ID what it should be?
	chosen   kind = "chosen"   // chief: resume from the manifest in Body, whose files Holders have; empty: begin anew
	begin    kind = "begin"    // chief: a save has begun; what is wanted for it
	keep     kind = "keep"     // chief: fetch a copy of File of ID from its task
	commit   kind = "commit"   // chief: write the manifest in Body
	retain   kind = "retain"   // chief: remove all but the newest Keep
	over     kind = "over"     // chief: the save of ID is done, or has failed: Remove what there is of it
	bye      kind = "bye"      // chief: nobody needs you any more
)

// message is what a task and the chief tell each other.
type message struct {
	Kind kind `json:"kind"`
	// Number pairs a question with its answer. In begin it is the number of the
	// snapshots. It is 0 in all other messages.
	Number  uint64                    `json:"number,omitempty"`
	Err     string                    `json:"error,omitempty"` // why the sender failed; empty means that it did not
	ID      string                    `json:"id,omitempty"`    // the checkpoint's
	Step    uint64                    `json:"step,omitempty"`  // number of steps before the checkpoint
	Token   string                    `json:"token,omitempty"`
	Tokens  []string                  `json:"tokens,omitempty"`
	Holding []announced               `json:"holding,omitempty"`
	Holders map[string][]cluster.Task `json:"holders,omitempty"` // by file: the tasks that hold it
	File    *checkpoint.File          `json:"file,omitempty"`
	Wanted  wanted                    `json:"wanted,omitzero"`
	Report  *report                   `json:"report,omitempty"`
	Keep    int                       `json:"keep,omitempty"`
	Remove  bool                      `json:"remove,omitempty"` // with over: the save has failed, remove its files
	Body    []byte                    `json:"body,omitempty"`   // an encoded manifest, byte for byte
}

// announced is what a folder holds of a checkpoint.
type announced struct {
	ID       string           `json:"id"`
	Manifest []byte           `json:"manifest,omitempty"` // encoded, byte for byte; empty if none can be read
	Damage   string           `json:"damage,omitempty"`   // why Manifest is empty; empty if it is not
	Files    map[string]int64 `json:"files,omitempty"`    // by name: size in bytes
}

// wanted is what a save wants of a task.
type wanted struct {
	Pieces bool `json:"pieces,omitempty"` // the task writes its pieces of variables
	State  bool `json:"state,omitempty"`  // the worker writes the state that it carries
}

// report is a task's part of a save: a file and what is in it, or none. Or it is
// the copy of another task's file.
type report struct {
	State   bool                 `json:"state,omitempty"` // the part is carried state, not pieces of variables
	Err     string               `json:"error,omitempty"` // why the part failed; empty means that it did not
	File    *checkpoint.File     `json:"file,omitempty"`  // nil if there was nothing to write
	Copy    bool                 `json:"copy,omitempty"`  // this task has copied File, another task's file
	Parts   []checkpoint.Part    `json:"parts,omitempty"`
	Carried []checkpoint.Carried `json:"carried,omitempty"`
	Held    int64                `json:"held,omitempty"` // nanoseconds for which the step stood still; 0 for carried state
}

const (
	maxManifest = 64 << 20                 // bytes
	maxMessage  = 16<<20 + maxManifest/3*4 // bytes: a manifest travels as base64
	maxCause    = 4 << 10                  // bytes of an error
)

// failure returns the text of err for a message; "" if err is nil.
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

// reason returns the error in a message of the chief; nil if there is none.
func (m message) reason() error {
	if m.Err == "" {
		return nil
	}
	return peers.DecodeReport([]byte(m.Err))
}

// mailbox delivers messages in order. post never waits; one goroutine calls
// run.
type mailbox struct {
	mu     sync.Mutex
	queue  []message
	posted chan struct{} // holds a token after the queue has grown
}

func newMailbox() *mailbox { return &mailbox{posted: make(chan struct{}, 1)} }

func (b *mailbox) post(m message) {
	b.mu.Lock()
	b.queue = append(b.queue, m)
	b.mu.Unlock()
	select {
	case b.posted <- struct{}{}:
	default: // a token is there already
	}
}

// run delivers until ctx ends, or with the error of a delivery.
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

// turn is an event that happens once, with success or with an error.
type turn struct {
	once sync.Once
	done chan struct{} // closed when the event has happened
	err  error         // nil means success; valid after done is closed
}

func newTurn() turn { return turn{done: make(chan struct{})} }

// take makes the event happen, unless it has happened already.
func (t *turn) take(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}

// over reports whether the event has happened.
func (t *turn) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// errEnough ends a conversation in good order.
var errEnough = errors.New("the conversation is over")

// converse sends the messages of out and passes received messages to hear. It returns
// the reason for the end: the session or ctx has ended, or hear has returned an error.
func converse(ctx context.Context, s *peers.Session, out *mailbox, hear func(message) error) error {
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
			err = hear(m)
		}
	}
	if ctx.Err() != nil && !errors.Is(err, errEnough) {
		err = context.Cause(ctx) // a session that was closed does not know why
	}
	cancel(err)
	sending.Wait()
	return err
}

// join connects this task to the chief's store and waits until all tasks are
// there.
func (s *Store) join(ctx context.Context, first message) error {
	c := s.config
	session, err := peers.Open(ctx, c.Peers, cluster.Chief, c.Cluster.Addr(cluster.Chief), purpose, c.Silence)
	if err != nil {
		return c.blame(cluster.Chief, err)
	}
	s.up.post(first)
	s.life.Go(func(ctx context.Context) {
		defer session.Close() // of no more use
		s.parted(converse(ctx, session, s.up, func(m message) error { return s.hear(ctx, m) }))
	})
	select {
	case <-s.joined.done:
		return s.joined.err
	case <-ctx.Done():
		return c.blame(cluster.Chief, fmt.Errorf("did not report that all tasks are there: %w", context.Cause(ctx)))
	}
}

// parted handles the end of the conversation with the chief, for the reason err.
func (s *Store) parted(err error) {
	if errors.Is(err, errEnough) {
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

// hear handles a message of the chief. It must return soon.
func (s *Store) hear(ctx context.Context, m message) error {
	switch m.Kind {
	case look:
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
		return errEnough
	default:
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	return nil
}

// reply answers a question once find has found the answer.
func (s *Store) reply(question message, find func() (message, error)) {
	s.life.Go(func(context.Context) {
		m, err := find()
		m.Kind, m.Number, m.Err = answer, question.Number, failure(err)
		s.up.post(m)
	})
}

// announce returns what a folder holds, the newest checkpoint first. It leaves
// out manifests of old checkpoints that do not fit into a message.
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

// held is the inverse of announce, for one checkpoint.
func (a announced) held() checkpoint.Held {
	h := checkpoint.Held{ID: a.ID, Damage: a.Damage, Files: a.Files}
	if len(a.Manifest) > 0 {
		var err error
		if h.Manifest, err = checkpoint.DecodeManifest(a.Manifest); err != nil {
			h.Damage = err.Error()
		}
	}
	return h
}

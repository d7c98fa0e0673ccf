package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// member is a task as the chief sees it. Any goroutine may use it.
type member struct {
	task    cluster.Task
	out     *mailbox    // to the task
	token   string      // of its folder's probe
	holding []announced // what its folder holds
	gone    turn        // with why it was lost; nil: it was allowed to go

	restored  atomic.Bool // it reads no more of the chosen checkpoint
	leaving   atomic.Bool // it wants to go
	dismissed atomic.Bool // it was allowed to go
	failed    atomic.Bool // it has failed to keep a copy of another task's file

	mu        sync.Mutex
	asked     uint64                  // questions so far
	questions map[uint64]chan message // by number: who waits for the answer
}

func newMember(t cluster.Task, hello message) *member {
	return &member{task: t, out: newMailbox(), token: hello.Token, holding: hello.Holding, gone: newTurn(),
		questions: map[uint64]chan message{}}
}

// present reports whether the task is there and stays for the time being.
func (m *member) present() bool { return !m.dismissed.Load() && !m.gone.over() }

// lost reports whether the task's connection has ended.
func (m *member) lost() bool { return m.gone.over() }

// dismiss allows the task to go.
func (m *member) dismiss() {
	if !m.dismissed.Swap(true) {
		m.out.post(message{Kind: bye})
	}
}

// ask puts a question and waits for the answer, but not longer than most.
func (m *member) ask(ctx context.Context, q message, most time.Duration) (message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer within %v", most))
	defer cancel()
	number, answered := m.question()
	defer m.forget(number)
	q.Number = number
	m.out.post(q)
	select {
	case a := <-answered:
		if a.Err == "" {
			return a, nil
		}
		return message{}, errors.New(a.Err)
	case <-m.gone.done:
		return message{}, cmp.Or(m.gone.err, errors.New("it has left"))
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// question numbers a question.
func (m *member) question() (number uint64, answered chan message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	answered = make(chan message, 1)
	m.questions[m.asked] = answered
	return m.asked, answered
}

func (m *member) forget(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.questions, number)
}

// answer takes an answer of the task. Nobody may wait for it any more.
func (m *member) answer(a message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to := m.questions[a.Number]; to != nil {
		delete(m.questions, a.Number)
		to <- a // it has room for one
	}
}

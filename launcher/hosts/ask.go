package hosts

import (
	"context"
	"errors"
)

// questions passes the questions of SSH servers at login, such as for a
// password, to the user. If several hosts ask the same question, the user
// answers once. The answers stay in memory, so that reconnections need no
// further question.
type questions struct {
	turn    chan struct{} // semaphore: holds one element while the user is asked a question; guards the other fields
	answers map[string]string
	stopped error // why plx asks the user nothing more, such as an empty answer; nil while questions are allowed
	ask     func(ctx context.Context, question string, echo bool) (string, error)
}

// answer returns the user's answer to a host's question. If the user has
// answered the same question before, it returns that answer without asking.
// refused is the answer that the host has just refused, or ""; it is not used
// again.
func (q *questions) answer(ctx context.Context, question string, echo bool, refused string) (string, error) {
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if q.stopped != nil {
		return "", q.stopped
	}
	if known, is := q.answers[question]; is && known != refused {
		return known, nil
	}
	text := question
	if refused != "" {
		text = "the last answer was refused: " + question
	}
	answer, err := q.ask(ctx, text, echo)
	if err != nil {
		if q.stopped = err; ctx.Err() != nil {
			q.stopped = nil // the time limit of this host has ended the question; other hosts may still ask
		}
		return "", err
	}
	if answer == "" {
		q.stopped = errors.New("no answer was given")
		return "", q.stopped
	}
	q.answers[question] = answer
	return answer, nil
}

package hosts

import (
	"context"
	"errors"
)

// questions are what hosts ask at the login. The user is asked once for all hosts. Answers
// are kept in memory only, since a lost connection is dialled again.
type questions struct {
	turn    chan struct{} // holds one element while the user is asked; guards the rest
	answers map[string]string
	stopped error // why the user is asked nothing more; nil: nothing has happened
	ask     func(ctx context.Context, question string, echo bool) (string, error)
}

// answer returns the user's answer. Another one than refused that is known already counts.
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
			q.stopped = nil // this host has waited too long
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

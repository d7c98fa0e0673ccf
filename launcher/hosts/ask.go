package hosts

import (
	"context"
	"errors"
)

// questions asks the user what SSH servers ask at login, such as a password.
// If several hosts ask the same question, the user answers once. Answers are
// kept only in memory, for reconnections.
type questions struct {
	turn    chan struct{} // semaphore: holds one element while the user is asked; guards the other fields
	answers map[string]string
	stopped error // why no more questions are asked, such as an empty answer; nil while questions are allowed
	ask     func(ctx context.Context, question string, echo bool) (string, error)
}

// answer returns the user's answer to a host's question. It returns an earlier
// answer to the same question without asking, unless the host has just refused
// that answer (refused).
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
			q.stopped = nil // only this host's time is over; other hosts may still ask
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

package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// If many hosts ask the same question, the user is asked once, and again only
// after the answer was refused.
func TestSameQuestionIsAskedOnce(t *testing.T) {
	asked := 0
	q := &questions{turn: make(chan struct{}, 1), answers: map[string]string{}, ask: func(_ context.Context, question string, _ bool) (string, error) {
		asked++
		return fmt.Sprintf("%s %d", question[max(0, len(question)-8):], asked), nil
	}}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, err := q.answer(t.Context(), "password", false, ""); got != "password 1" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
	all = sync.WaitGroup{}
	for range 20 {
		all.Go(func() {
			if got, err := q.answer(t.Context(), "password", false, "password 1"); got != "password 2" || err != nil {
				t.Errorf("after a refusal: %q, %v", got, err)
			}
		})
	}
	all.Wait()
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// After an empty answer, the user is not asked any further question.
func TestEmptyAnswerEndsQuestions(t *testing.T) {
	asked, gone := 0, errors.New("no answer was given")
	q := &questions{turn: make(chan struct{}, 1), answers: map[string]string{}, ask: func(context.Context, string, bool) (string, error) {
		asked++
		return "", gone
	}}
	for _, question := range []string{"password", "code"} {
		if _, err := q.answer(t.Context(), question, false, ""); !errors.Is(err, gone) {
			t.Errorf("%s: %v", question, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

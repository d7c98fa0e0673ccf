package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/plx-run/plx/launcher/console"
)

// Together calls work for every host. It returns equal errors once, with the names of
// their hosts.
func Together(ctx context.Context, on []*AgentHost, work func(int, *AgentHost) error) error {
	failed := make([]error, len(on))
	_ = Each(ctx, on, func(i int, a *AgentHost) error { // the errors are in failed
		failed[i] = work(i, a)
		return nil
	})
	names := map[string][]string{}
	var errs []error
	for i, err := range failed {
		if err == nil {
			continue
		}
		if names[err.Error()] == nil {
			errs = append(errs, err)
		}
		names[err.Error()] = append(names[err.Error()], on[i].Name())
	}
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", Listed(names[err.Error()]), err)
	}
	return cmp.Or(context.Cause(ctx), errors.Join(errs...))
}

// Listed names hosts.
func Listed(names []string) string {
	if len(names) == 1 {
		return "host " + names[0]
	}
	return "hosts " + console.Fold(names)
}

package ssh

import (
	"context"
	"fmt"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// maxPrompts is the number of attempts to answer a login prompt, such as for
// a password. It equals ssh's default of NumberOfPasswordPrompts.
const maxPrompts = 3

// promptMethods returns the authentication methods that prompt the user:
// keyboard-interactive and password. It returns none if cfg.Ask is nil or the
// ssh configuration disables both methods.
func promptMethods(ctx context.Context, cfg Config, t sshconfig.Target) (all []gossh.AuthMethod) {
	if cfg.Ask == nil {
		return nil
	}
	if !t.NoInteractive {
		all = append(all, gossh.RetryableAuthMethod(interactive(ctx, cfg, t), maxPrompts))
	}
	if !t.NoPassword {
		last := ""
		ask := func() (answer string, err error) {
			answer, err = cfg.Ask(ctx, fmt.Sprintf("password of %s on the hosts", t.User), false, last)
			last = answer
			return answer, err
		}
		all = append(all, gossh.RetryableAuthMethod(gossh.PasswordCallback(ask), maxPrompts))
	}
	return all
}

// interactive returns a handler for keyboard-interactive authentication that
// passes each prompt of the server to cfg.Ask. A repeated prompt means that
// the previous answer was wrong, so Ask receives that answer too.
func interactive(ctx context.Context, cfg Config, t sshconfig.Target) gossh.KeyboardInteractiveChallenge {
	last := map[string]string{}
	return func(_, instruction string, asked []string, echo []bool) (answers []string, err error) {
		for i, question := range asked {
			text := fmt.Sprintf("%s on the hosts: %s", t.User, question)
			if instruction != "" && i == 0 {
				text = instruction + ": " + text
			}
			answer, err := cfg.Ask(ctx, text, echo[i], last[question])
			if err != nil {
				return nil, err
			}
			last[question] = answer
			answers = append(answers, answer)
		}
		return answers, nil
	}
}

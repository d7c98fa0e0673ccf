package ssh

import (
	"context"
	"fmt"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// mostAnswers is how often a host is answered, as ssh does.
const mostAnswers = 3

// questions are the ways to log in that ask the user. There are none if nobody can be asked,
// or if the configuration forbids it.
func questions(ctx context.Context, cfg Config, t sshconfig.Target) (all []gossh.AuthMethod) {
	if cfg.Ask == nil {
		return nil
	}
	if !t.NoInteractive {
		all = append(all, gossh.RetryableAuthMethod(interactive(ctx, cfg, t), mostAnswers))
	}
	if !t.NoPassword {
		last := ""
		ask := func() (answer string, err error) {
			answer, err = cfg.Ask(ctx, fmt.Sprintf("password of %s on the hosts", t.User), false, last)
			last = answer
			return answer, err
		}
		all = append(all, gossh.RetryableAuthMethod(gossh.PasswordCallback(ask), mostAnswers))
	}
	return all
}

// interactive answers what the server asks. It hands the user's last answer to each
// question to Ask, since the server asks again if it was wrong.
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

package launcher

import (
	"slices"
	"strings"
	"testing"
)

// Values of variables and flags with secret-looking names are not recorded;
// hyperparameters are.
func TestRedactHidesSecrets(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"plx launch --env API_KEY=abc --env MODE=a --env=HF_TOKEN=b ./t", "plx launch --env API_KEY=*** --env MODE=a --env=HF_TOKEN=*** ./t"},
		{"--env my_passphrase=x --env monkey=y", "--env my_passphrase=*** --env monkey=***"},
		{"--hf-token abc --tokenizer bpe --max-tokens 5", "--hf-token *** --tokenizer bpe --max-tokens 5"},
		{"--api-key=abc --token --verbose model.tokenizer=bpe db.password=x", "--api-key=*** --token --verbose model.tokenizer=bpe db.password=***"},
		{"AWS_SECRET_ACCESS_KEY=abc LR=0.1", "AWS_SECRET_ACCESS_KEY=*** LR=0.1"},
		{"git+https://bob:pw@host/x", "git+https://bob:***@host/x"},
	} {
		if got := strings.Join(redact(strings.Fields(c.words)), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.words, got, c.want)
		}
	}
	line := []string{"sh", "-c", `export TOKEN='a b'; WANDB_API_KEY="x y" python3 t.py --password hunter2 --lr 1; echo $HOME`}
	want := []string{"sh", "-c", `export TOKEN=***; WANDB_API_KEY=*** python3 t.py --password *** --lr 1; echo $HOME`}
	if got := redact(line); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestQuotedIsValidShell(t *testing.T) {
	if got := quoted([]string{"sh", "-c", "it's $x", "", "a=b", "--lr", "*.py"}); got != `sh -c 'it'\''s $x' '' a=b --lr '*.py'` {
		t.Error(got)
	}
}

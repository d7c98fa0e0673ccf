package launcher

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// hidden replaces secrets in recorded command lines.
const hidden = "***"

// isSecret reports whether the name of an environment variable suggests that
// its value is a secret.
func isSecret(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL"}, func(part string) bool { return strings.Contains(name, part) })
}

// isSecretFlag reports whether the name of a flag suggests that its value is a
// secret. It compares whole words of the name: --hf-token is a secret flag,
// and --tokenizer is not.
func isSecretFlag(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains([]string{"key", "apikey", "token", "secret", "pass", "passwd", "password", "passphrase", "credential", "credentials"}, word)
	})
}

// secrets holds the regular expressions with which redact finds values that
// may be secrets.
type secrets struct {
	variable *regexp.Regexp // matches NAME=VALUE
	flag     *regexp.Regexp // matches -name VALUE and -name=VALUE
	url      *regexp.Regexp // matches a URL that contains a password
}

var secretsIn = sync.OnceValue(func() secrets {
	return secrets{
		variable: regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_.-]*)=("[^"]*"|'[^']*'|[^\s;&|]*)`),
		flag:     regexp.MustCompile(`(--?[A-Za-z][A-Za-z0-9_.-]*)([ =])("[^"]*"|'[^']*'|[^\s;&|]+)`),
		url:      regexp.MustCompile(`(://[^/\s:@]*):[^/\s@]+@`),
	}
})

// redact returns a command line in which "***" replaces secrets. Secrets are
// passwords in URLs, and values of variables and flags with a name such as
// TOKEN or --password. redact also searches arguments that contain a whole
// shell command line.
func redact(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		if name, _, found := strings.Cut(strings.TrimPrefix(word, "--env="), "="); found && (before == "--env" || strings.HasPrefix(word, "--env=")) && isSecret(name) {
			out[i] = word[:strings.Index(word, name)+len(name)+1] + hidden
			continue
		}
		if strings.HasPrefix(before, "-") && !strings.Contains(before, "=") && isSecretFlag(before) && !strings.HasPrefix(word, "-") {
			out[i] = hidden
			continue
		}
		out[i] = redactText(word)
	}
	return out
}

func redactText(text string) string {
	text = secretsIn().url.ReplaceAllString(text, "$1:"+hidden+"@")
	text = secretsIn().flag.ReplaceAllStringFunc(text, func(found string) string {
		m := secretsIn().flag.FindStringSubmatch(found)
		if isSecretFlag(m[1]) && !strings.HasPrefix(m[3], "-") {
			return m[1] + m[2] + hidden
		}
		return found
	})
	return secretsIn().variable.ReplaceAllStringFunc(text, func(found string) string {
		name, _, _ := strings.Cut(found, "=")
		if strings.ToUpper(name) == name && isSecret(name) || isSecretFlag(name) {
			return name + "=" + hidden
		}
		return found
	})
}

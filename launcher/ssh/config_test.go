package ssh

import "testing"

func TestValidateRejects(t *testing.T) {
	for _, cfg := range []Config{
		{}, {Host: "-oProxyCommand=x"}, {Host: "a b"}, {Host: "a", User: "-l"}, {Host: "a", Port: -1},
		{Host: "a", Port: 65536}, {Host: "u@a"}, {Host: "a;b"}, {Host: "$(x)"}, {Host: "a\nb"},
	} {
		cfg.Home = "/nonexistent"
		if err := cfg.validate(); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

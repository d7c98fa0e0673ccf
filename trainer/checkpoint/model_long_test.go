//go:build long

package checkpoint

import "testing"

func TestAgainstModelForLong(t *testing.T) { againstModel(t, 6, 60) }

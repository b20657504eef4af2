package takeover_test

import (
	"testing"
	"time"
)

// TestOverAndBack goes there and back under load.
func TestOverAndBack(t *testing.T) {
	const n = 3
	s := newSite(t, n)
	l := s.publish(n, 4, 20*time.Millisecond)
	if code, out, _ := s.takeOver("plan"); code != 0 {
		t.Fatalf("plan: exit code %d\n%s", code, out)
	} else {
		t.Log(out)
	}
	for _, way := range []string{"run", "undo"} {
		began := time.Now()
		code, out, log := s.takeOver(way)
		t.Logf("%s took %s:\n%s%s", way, time.Since(began).Round(time.Second), out, log)
		if code != 0 {
			t.Fatalf("%s: exit code %d", way, code)
		}
		if code, out, _ := s.takeOver("verify"); (code == 0) != (way == "run") {
			t.Fatalf("verify after %s: exit code %d\n%s", way, code, out)
		}
		time.Sleep(2 * time.Second)
	}
	s.alone()
	accepted, twice := l.end()
	if accepted < 1000 || twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
}

package main

import "testing"

func TestWhatIsGeneratedIsUpToDate(t *testing.T) {
	t.Chdir("../..")
	if err := run(true); err != nil {
		t.Error(err)
	}
}

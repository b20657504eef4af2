package kyma
import ("testing";"time";"context")
func TestZZ(t *testing.T) {
	for v, cp := range planes {
		if v != "v1" { continue }
		ctx := context.Background()
		t0 := time.Now()
		names, err := Reset(ctx, cp.Config(), 2000)
		if err != nil { t.Fatal(err) }
		t.Logf("%s reset to 2000: %v", v, time.Since(t0))
		c, err := Start(ctx, cp.Config(), Options{})
		if err != nil { t.Fatal(err) }
		t0 = time.Now()
		if err := PutHTTPSources(ctx, cp.Config(), names...); err != nil { t.Fatal(err) }
		t.Logf("created: %v", time.Since(t0))
		if err := c.WaitReady(ctx, names...); err != nil { t.Fatal(err) }
		t.Logf("ready: %v", time.Since(t0))
		t0 = time.Now()
		if err := Clear(ctx, cp.Config()); err != nil { t.Fatal(err) }
		t.Logf("clear with stand-in: %v", time.Since(t0))
		if err := c.WaitEmpty(ctx); err != nil { t.Fatal(err) }
		t.Logf("empty: %v", time.Since(t0))
		for range 5 {
		t0 = time.Now()
		if _, err := Reset(ctx, cp.Config(), 5); err != nil { t.Fatal(err) }
		t.Logf("small reset: %v", time.Since(t0))
		if err := PutHTTPSources(ctx, cp.Config(), names[:5]...); err != nil { t.Fatal(err) }
		if err := c.WaitReady(ctx, names[:5]...); err != nil { t.Fatal(err) }
		t.Logf("5 ready: %v", time.Since(t0))
		}
		c.Stop()
	}
}
